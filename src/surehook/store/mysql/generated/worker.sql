-- Written by `make generate` from store/postgres/worker.sql; do not edit.

-- name: newest_secret :many
SELECT
  sealed
FROM subscription_secrets
ORDER BY
  id DESC
LIMIT 1;

-- name: live_secrets :many
SELECT
  subscription_id,
  sealed
FROM subscription_secrets
WHERE
  subscription_id IN :subscription_ids
  AND (
    expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6)
  )
ORDER BY
  subscription_id,
  id DESC;
