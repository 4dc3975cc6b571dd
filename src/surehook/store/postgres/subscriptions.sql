-- Subscription API: INSERT and UPDATE subscriptions (never `verified`), INSERT secrets, UPDATE
-- their expiry.

-- name: create_subscription :one
-- A repeated idempotency key gives no row; find_by_key tells what is there.
INSERT INTO subscriptions
    (tenant, event_type, callback_url, active, max_attempts, base_delay_seconds,
     request_timeout_seconds, concurrency_cap, rate_limit_per_second, custom_headers, description,
     idempotency_key)
VALUES (:tenant, :event_type, :callback_url, :active, :max_attempts, :base_delay_seconds,
     :request_timeout_seconds, :concurrency_cap, :rate_limit_per_second, :custom_headers,
     :description, :idempotency_key)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_by_key :one
SELECT id FROM subscriptions WHERE tenant = :tenant AND idempotency_key = :idempotency_key;

-- name: read_subscription :one
SELECT id, tenant, event_type, callback_url, pending_callback_url, active, verified, eligible_from,
    max_attempts, base_delay_seconds, request_timeout_seconds, concurrency_cap,
    rate_limit_per_second, description, created_at, updated_at
FROM subscriptions
WHERE id = :id AND (:tenant::varchar IS NULL OR tenant = :tenant);

-- name: update_subscription :one
-- Every setting is given anew. A new URL is staged while the old one is verified and works; an
-- unverified subscription just takes it.
UPDATE subscriptions
SET event_type = :event_type,
    callback_url = CASE WHEN verified THEN callback_url ELSE :callback_url END,
    pending_callback_url = CASE
        WHEN verified AND :callback_url <> callback_url THEN :callback_url END,
    active = :active, max_attempts = :max_attempts, base_delay_seconds = :base_delay_seconds,
    request_timeout_seconds = :request_timeout_seconds, concurrency_cap = :concurrency_cap,
    rate_limit_per_second = :rate_limit_per_second, description = :description
WHERE id = :id
RETURNING id;

-- name: set_custom_headers :none
UPDATE subscriptions SET custom_headers = :custom_headers WHERE id = :id;

-- name: add_secret :one
INSERT INTO subscription_secrets (subscription_id, scheme, sealed)
VALUES (:subscription_id, :scheme, :sealed)
RETURNING id;

-- name: expire_secrets :one
-- Everything older than the new secret signs on for a while, then no more.
UPDATE subscription_secrets
SET expires_at = surehook_now() + interval '1 second' * :overlap_seconds::float8
WHERE subscription_id = :subscription_id AND scheme = :scheme AND id < :before_id
  AND (expires_at IS NULL
       OR expires_at > surehook_now() + interval '1 second' * :overlap_seconds::float8)
RETURNING expires_at;

-- name: schemes :many
SELECT DISTINCT scheme FROM subscription_secrets
WHERE subscription_id = :subscription_id AND (expires_at IS NULL OR expires_at > surehook_now());
