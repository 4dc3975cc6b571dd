-- Keys: INSERT api_keys, UPDATE api_keys (revoked_at).

-- name: read_key :one
SELECT id, name, scopes, tenant, created_at, last_used_at, revoked_at
FROM api_keys WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant);
