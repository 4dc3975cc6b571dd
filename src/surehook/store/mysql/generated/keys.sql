-- Written by `make generate` from store/postgres/keys.sql; do not edit.

-- name: create_key :none
INSERT INTO api_keys (
  name,
  key_hash,
  scopes,
  tenant
)
VALUES
  (:key_name, :key_hash, :scopes, :tenant);

-- name: revoke_key :none
UPDATE api_keys SET revoked_at = COALESCE(revoked_at, UTC_TIMESTAMP(6))
WHERE
  id = :id AND (
    :tenant IS NULL OR tenant = :tenant
  );

-- name: read_key :one Key
SELECT
  {Key}
FROM api_keys
WHERE
  id = :id AND (
    :tenant IS NULL OR tenant = :tenant
  );

-- name: list_keys :many Key
SELECT
  {Key}
FROM api_keys
WHERE
  :tenant IS NULL OR tenant = :tenant
ORDER BY
  id DESC;
