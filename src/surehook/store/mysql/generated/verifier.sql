-- Written by `make generate` from store/postgres/verifier.sql; do not edit.

-- name: to_be_proved :one
SELECT
  COALESCE(s.pending_callback_url, s.callback_url),
  (
    SELECT
      MAX(x.id)
    FROM subscription_secrets AS x
    WHERE
      x.subscription_id = s.id
      AND x.scheme = 'v1'
      AND (
        x.expires_at IS NULL OR x.expires_at > UTC_TIMESTAMP(6)
      )
  )
FROM subscriptions AS s
WHERE
  s.id = :subscription_id AND (
    :tenant IS NULL OR s.tenant = :tenant
  );

-- name: request_verification :none
INSERT INTO subscription_verifications (
  subscription_id,
  callback_url,
  secret_id,
  challenge,
  code,
  expires_at
)
VALUES
  (
    :subscription_id,
    :callback_url,
    :secret_id,
    :challenge,
    :code,
    UTC_TIMESTAMP(6) + INTERVAL :lifetime_seconds SECOND
  );

-- name: any_verification :one
SELECT
  EXISTS(
    SELECT
      1
    FROM subscription_verifications
    WHERE
      verified_at IS NULL
      AND attempts < :attempts_max
      AND expires_at > UTC_TIMESTAMP(6)
      AND (
        last_attempt_at IS NULL
        OR last_attempt_at < UTC_TIMESTAMP(6) - INTERVAL :pause_seconds SECOND
      )
  ) AS waits;

-- name: next_verification :one
SELECT
  id,
  subscription_id,
  callback_url,
  secret_id,
  challenge,
  code
FROM subscription_verifications
WHERE
  verified_at IS NULL
  AND attempts < :attempts_max
  AND expires_at > UTC_TIMESTAMP(6)
  AND (
    last_attempt_at IS NULL
    OR last_attempt_at < UTC_TIMESTAMP(6) - INTERVAL :pause_seconds SECOND
  )
ORDER BY
  id
LIMIT 1   FOR UPDATE SKIP LOCKED;

-- name: take :none
UPDATE subscription_verifications SET attempts = attempts + 1, last_attempt_at = UTC_TIMESTAMP(6), last_result = 'sending', last_reason = NULL
WHERE
  id = :id;

-- name: secret_of :one
SELECT
  sealed,
  UTC_TIMESTAMP(6)
FROM subscription_secrets
WHERE
  id = :secret_id;

-- name: report :none
UPDATE subscription_verifications SET last_result = :result, last_reason = :reason
WHERE
  id = :id AND verified_at IS NULL;

-- name: mark_verified :none
UPDATE subscription_verifications SET verified_at = UTC_TIMESTAMP(6), last_result = :result, last_reason = :reason
WHERE
  id = :id;

-- name: open_verification :one
SELECT
  v.id
FROM subscription_verifications AS v
JOIN subscriptions AS s
  ON s.id = v.subscription_id
WHERE
  v.subscription_id = :subscription_id
  AND (
    :tenant IS NULL OR s.tenant = :tenant
  )
  AND v.verified_at IS NULL
  AND v.expires_at > UTC_TIMESTAMP(6)
ORDER BY
  v.id DESC
LIMIT 1;

-- name: lock_verification :one
SELECT
  code,
  code_tries
FROM subscription_verifications
WHERE
  id = :id   FOR UPDATE;

-- name: count_code_try :none
UPDATE subscription_verifications SET code_tries = code_tries + 1
WHERE
  id = :id;

-- name: read :one Verification
SELECT
  {Verification}
FROM subscription_verifications
WHERE
  id = :id;

-- name: sealed_headers :many
SELECT
  id,
  custom_headers
FROM subscriptions
WHERE
  id IN :subscription_ids AND custom_headers IS NOT NULL;

-- name: trial_target :one
SELECT
  COALESCE(pending_callback_url, callback_url),
  event_type,
  request_timeout_seconds,
  custom_headers,
  UTC_TIMESTAMP(6)
FROM subscriptions
WHERE
  id = :subscription_id AND (
    :tenant IS NULL OR tenant = :tenant
  );

-- name: trial_secrets :many
SELECT
  sealed
FROM subscription_secrets
WHERE
  subscription_id = :subscription_id
  AND (
    expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6)
  )
ORDER BY
  id DESC;
