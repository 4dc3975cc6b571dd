-- Keys: INSERT api_keys, UPDATE api_keys (revoked_at).

-- name: create_key :one
INSERT INTO api_keys (name, key_hash, scopes, tenant)
VALUES (:key_name, :key_hash, :scopes, :tenant)
RETURNING id;

-- name: revoke_key :one
-- A second time keeps the first time. A key bound to a tenant reaches that tenant's keys only.
UPDATE api_keys SET revoked_at = COALESCE(revoked_at, surehook_now())
WHERE id = :id AND (:tenant::varchar IS NULL OR tenant = :tenant)
RETURNING id;

-- name: read_key :one Key
SELECT {Key} FROM api_keys WHERE id = :id AND (:tenant::varchar IS NULL OR tenant = :tenant);

-- name: list_keys :many Key
SELECT {Key} FROM api_keys
WHERE :tenant::varchar IS NULL OR tenant = :tenant
ORDER BY id DESC;
