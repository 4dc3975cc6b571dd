-- Written by `make generate` from store/postgres/key_checks.sql; do not edit.

-- name: find :many
SELECT
  id,
  name,
  scopes,
  tenant,
  key_hash
FROM api_keys
WHERE
  key_hash IN :key_hashes AND revoked_at IS NULL;

-- name: touch :none
UPDATE api_keys SET last_used_at = UTC_TIMESTAMP(6)
WHERE
  id = :id
  AND (
    last_used_at IS NULL
    OR last_used_at < UTC_TIMESTAMP(6) - INTERVAL :every_seconds SECOND
  );
