-- Keys: INSERT api_keys, UPDATE api_keys (revoked_at).

-- name: create_key :none
INSERT INTO api_keys (name, key_hash, scopes, tenant)
VALUES (:key_name, :key_hash, :scopes, :tenant);

-- name: revoke_key :none
-- A second time keeps the first time. A key bound to a tenant reaches that tenant's keys only.
UPDATE api_keys SET revoked_at = COALESCE(revoked_at, UTC_TIMESTAMP(6))
WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant);

-- name: read_key :one
SELECT id, name, scopes, tenant, created_at, last_used_at, revoked_at
FROM api_keys WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant);

-- name: list_keys :many
SELECT id, name, scopes, tenant, created_at, last_used_at, revoked_at
FROM api_keys
WHERE :tenant IS NULL OR tenant = :tenant
ORDER BY id DESC;
