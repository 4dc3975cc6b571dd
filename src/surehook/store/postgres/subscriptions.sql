-- Subscription API: INSERT and UPDATE subscriptions (never `verified`), INSERT secrets, UPDATE
-- their expiry.

-- name: create_subscription :one
-- A repeated idempotency key gives no row; find_by_key finds the one that is there.
INSERT INTO subscriptions
    (callback_url, custom_headers, idempotency_key, {Subscription:names})
VALUES (:callback_url, :custom_headers, :idempotency_key, {Subscription:values})
ON CONFLICT DO NOTHING
RETURNING id;

-- name: lock_tenant :many
-- Who creates for the same tenant takes turns: the next one's count sees this one's subscription.
SELECT id FROM subscriptions WHERE tenant = :tenant ORDER BY id LIMIT 1 FOR UPDATE;

-- name: count_of_tenant :one
SELECT count(*) FROM subscriptions WHERE tenant = :tenant;

-- name: find_by_key :one
SELECT id FROM subscriptions WHERE tenant = :tenant AND idempotency_key = :idempotency_key;

-- name: read_subscription :one Subscription
SELECT {Subscription}
FROM subscriptions
WHERE id = :id AND (:tenant::varchar IS NULL OR tenant = :tenant);

-- name: update_subscription :one
-- Only what is named in :changed changes, so that two changes of different settings at once both
-- hold. A new URL is staged while the old one is verified and works; an unverified one just takes
-- it. No row: there is none of this tenant, or it has none of these versions. (The staged URL comes
-- first: on MySQL what is set here is seen by what stands behind it.)
UPDATE subscriptions
SET pending_callback_url = CASE
        WHEN NOT 'callback_url' = ANY (string_to_array(:changed, ',')) THEN pending_callback_url
        WHEN verified AND :callback_url <> callback_url THEN :callback_url END,
    callback_url = CASE WHEN 'callback_url' = ANY (string_to_array(:changed, ','))
        AND NOT verified THEN :callback_url ELSE callback_url END,
    {Subscription:changes}
WHERE id = :id AND (:tenant::varchar IS NULL OR tenant = :tenant)
  AND (:versions::text IS NULL OR version = ANY (string_to_array(:versions, ',')::bigint[]))
RETURNING id;

-- name: set_custom_headers :none
UPDATE subscriptions SET custom_headers = :custom_headers WHERE id = :id;

-- name: add_secret :one
INSERT INTO subscription_secrets (subscription_id, scheme, sealed)
VALUES (:subscription_id, :scheme, :sealed)
RETURNING id;

-- name: expiry :one
SELECT surehook_now() + interval '1 second' * :overlap_seconds::float8;

-- name: expire_secrets :many
-- Everything older than the new secret signs on for a while, then no more.
UPDATE subscription_secrets
SET expires_at = :expires_at
WHERE subscription_id = :subscription_id AND scheme = :scheme AND id < :before_id
  AND (expires_at IS NULL OR expires_at > :expires_at)
RETURNING id;
