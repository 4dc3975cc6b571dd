-- Subscription API: INSERT and UPDATE subscriptions (never `verified`), INSERT secrets, UPDATE
-- their expiry.

-- name: create_subscription :none
INSERT INTO subscriptions
    (tenant, event_type, callback_url, active, max_attempts, base_delay_seconds,
     request_timeout_seconds, concurrency_cap, rate_limit_per_second, custom_headers, description,
     idempotency_key)
VALUES (:tenant, :event_type, :callback_url, :active, :max_attempts, :base_delay_seconds,
     :request_timeout_seconds, :concurrency_cap, :rate_limit_per_second, :custom_headers,
     :description, :idempotency_key);

-- name: find_by_key :one
SELECT id FROM subscriptions WHERE tenant = :tenant AND idempotency_key = :idempotency_key;

-- name: read_subscription :one
SELECT id, tenant, event_type, callback_url, pending_callback_url, active, verified, eligible_from,
    max_attempts, base_delay_seconds, request_timeout_seconds, concurrency_cap,
    rate_limit_per_second, description, created_at, updated_at
FROM subscriptions
WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant);

-- name: update_subscription :one
-- Every setting is given anew. A new URL is staged while the old one is verified and works; an
-- unverified subscription just takes it. (The staged one comes first: what is set here is seen by
-- what stands behind it.)
UPDATE subscriptions
SET pending_callback_url = CASE
        WHEN verified AND :callback_url <> callback_url THEN :callback_url END,
    callback_url = CASE WHEN verified THEN callback_url ELSE :callback_url END,
    event_type = :event_type,
    active = :active, max_attempts = :max_attempts, base_delay_seconds = :base_delay_seconds,
    request_timeout_seconds = :request_timeout_seconds, concurrency_cap = :concurrency_cap,
    rate_limit_per_second = :rate_limit_per_second, description = :description
WHERE id = :id;

-- name: set_custom_headers :none
UPDATE subscriptions SET custom_headers = :custom_headers WHERE id = :id;

-- name: add_secret :none
INSERT INTO subscription_secrets (subscription_id, scheme, sealed)
VALUES (:subscription_id, :scheme, :sealed);

-- name: expiry :one
SELECT UTC_TIMESTAMP(6) + INTERVAL :overlap_microseconds MICROSECOND;

-- name: expire_secrets :none
-- Everything older than the new secret signs on for a while, then no more.
UPDATE subscription_secrets
SET expires_at = :expires_at
WHERE subscription_id = :subscription_id AND scheme = :scheme AND id < :before_id
  AND (expires_at IS NULL OR expires_at > :expires_at);

-- name: schemes :many
SELECT DISTINCT scheme FROM subscription_secrets
WHERE subscription_id = :subscription_id
  AND (expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6));
