-- Key checks: SELECT api_keys, UPDATE last_used_at.

-- name: find :many
SELECT id, name, scopes, tenant, key_hash FROM api_keys
WHERE key_hash = ANY (:key_hashes::bytea[]) AND revoked_at IS NULL;

-- name: touch :none
-- Once a minute is enough, whichever process is first.
UPDATE api_keys SET last_used_at = surehook_now()
WHERE id = :id
  AND (last_used_at IS NULL
       OR last_used_at < surehook_now() - interval '1 second' * :every_seconds::float8);

