-- Keys: INSERT api_keys, UPDATE api_keys (revoked_at).

-- name: create_key :one Key
INSERT INTO api_keys (name, key_hash, scopes, tenant)
VALUES (:key_name, :key_hash, :scopes, :tenant)
RETURNING {Key};

-- name: revoke_key :one Key
-- A second time keeps the first time. A key bound to a tenant reaches that tenant's keys only.
UPDATE api_keys SET revoked_at = COALESCE(revoked_at, surehook_now())
WHERE id = :id AND (:tenant::varchar IS NULL OR tenant = :tenant)
RETURNING {Key};

-- name: list_keys :many Key
SELECT {Key} FROM api_keys
WHERE :tenant::varchar IS NULL OR tenant = :tenant
ORDER BY id DESC;
