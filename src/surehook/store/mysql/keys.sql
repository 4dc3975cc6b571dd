-- Keys: INSERT api_keys, UPDATE api_keys (revoked_at).

-- name: read_key :one Key
SELECT {Key} FROM api_keys WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant);
