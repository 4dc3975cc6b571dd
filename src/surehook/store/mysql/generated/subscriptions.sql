-- Written by `make generate` from store/postgres/subscriptions.sql; do not edit.

-- name: create_subscription :none
INSERT INTO subscriptions (
  callback_url,
  custom_headers,
  idempotency_key,
  {Subscription:names}
)
VALUES
  (:callback_url, :custom_headers, :idempotency_key, {Subscription:values});

-- name: lock_tenant :many
SELECT
  id
FROM subscriptions
WHERE
  tenant = :tenant
ORDER BY
  id
LIMIT 1   FOR UPDATE;

-- name: count_of_tenant :one
SELECT
  COUNT(*)
FROM subscriptions
WHERE
  tenant = :tenant;

-- name: find_by_key :one
SELECT
  id
FROM subscriptions
WHERE
  tenant = :tenant AND idempotency_key = :idempotency_key;

-- name: read_subscription :one Subscription
SELECT
  {Subscription}
FROM subscriptions
WHERE
  id = :id AND (
    :tenant IS NULL OR tenant = :tenant
  );

-- name: update_subscription :none
UPDATE subscriptions SET pending_callback_url = CASE
  WHEN NOT FIND_IN_SET('callback_url', :changed)
  THEN pending_callback_url
  WHEN verified AND :callback_url <> callback_url
  THEN :callback_url
END, callback_url = CASE
  WHEN FIND_IN_SET('callback_url', :changed) AND NOT verified
  THEN :callback_url
  ELSE callback_url
END, {Subscription:changes}
WHERE
  id = :id
  AND (
    :tenant IS NULL OR tenant = :tenant
  )
  AND (
    :versions IS NULL OR FIND_IN_SET(version, :versions)
  );

-- name: set_custom_headers :none
UPDATE subscriptions SET custom_headers = :custom_headers
WHERE
  id = :id;

-- name: add_secret :none
INSERT INTO subscription_secrets (
  subscription_id,
  scheme,
  sealed
)
VALUES
  (:subscription_id, :scheme, :sealed);

-- name: expiry :one
SELECT
  UTC_TIMESTAMP(6) + INTERVAL :overlap_seconds SECOND;

-- name: expire_secrets :none
UPDATE subscription_secrets SET expires_at = :expires_at
WHERE
  subscription_id = :subscription_id
  AND scheme = :scheme
  AND id < :before_id
  AND (
    expires_at IS NULL OR expires_at > :expires_at
  );
