-- Key checks: SELECT api_keys, UPDATE last_used_at.

-- name: find_keys :many
SELECT id, name, scopes, tenant, key_hash FROM api_keys
WHERE key_hash IN :key_hashes AND revoked_at IS NULL;

-- name: touch_key :none
-- Once a minute is enough, whichever process is first.
UPDATE api_keys SET last_used_at = UTC_TIMESTAMP(6)
WHERE id = :id
  AND (last_used_at IS NULL
       OR TIMESTAMPDIFF(MICROSECOND, last_used_at, UTC_TIMESTAMP(6)) > :every_seconds * 1e6);
