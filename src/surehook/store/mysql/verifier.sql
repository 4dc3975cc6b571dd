-- Verifier: INSERT and UPDATE verifications, UPDATE subscriptions (verified and the two URLs).

-- name: any_verification :one
-- What an idle verifier asks, without a transaction.
SELECT EXISTS (
    SELECT 1 FROM subscription_verifications
    WHERE verified_at IS NULL AND attempts < :attempts_max AND expires_at > UTC_TIMESTAMP(6)
      AND (last_attempt_at IS NULL
           OR last_attempt_at < UTC_TIMESTAMP(6) - INTERVAL :pause_seconds SECOND)
) AS waits;

-- name: next_verification :one
-- The next challenge to send; two verifiers never take the same.
SELECT id, subscription_id, callback_url, secret_id, challenge, code
FROM subscription_verifications
WHERE verified_at IS NULL AND attempts < :attempts_max AND expires_at > UTC_TIMESTAMP(6)
  AND (last_attempt_at IS NULL
       OR last_attempt_at < UTC_TIMESTAMP(6) - INTERVAL :pause_seconds SECOND)
ORDER BY id LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: take :none
-- Taken by counting its attempt.
UPDATE subscription_verifications
SET attempts = attempts + 1, last_attempt_at = UTC_TIMESTAMP(6), last_result = 'sending',
    last_reason = NULL
WHERE id = :id;

-- name: verify_subscription :none
-- Only if URL and secret are still those that were challenged. A staged URL moves in by the same
-- statement, so that nothing stops meanwhile. (verified = 2 is how the trigger knows that the
-- writer may; it keeps 1.)
UPDATE subscriptions s
JOIN subscription_verifications v ON v.subscription_id = s.id
SET s.verified = 2, s.callback_url = v.callback_url, s.pending_callback_url = NULL
WHERE v.id = :id AND v.verified_at IS NULL AND v.expires_at > UTC_TIMESTAMP(6)
  AND v.callback_url = COALESCE(s.pending_callback_url, s.callback_url)
  AND v.secret_id = (
      SELECT MAX(x.id) FROM subscription_secrets x
      WHERE x.subscription_id = s.id AND x.scheme = 'v1'
        AND (x.expires_at IS NULL OR x.expires_at > UTC_TIMESTAMP(6)));

-- name: open_verification :one
-- The newest one that still waits for its code.
SELECT v.id, v.code, v.code_tries FROM subscription_verifications v
JOIN subscriptions s ON s.id = v.subscription_id
WHERE v.subscription_id = :subscription_id AND (:tenant IS NULL OR s.tenant = :tenant)
  AND v.verified_at IS NULL AND v.expires_at > UTC_TIMESTAMP(6)
ORDER BY v.id DESC LIMIT 1;

-- name: lock_verification :one
SELECT code_tries FROM subscription_verifications WHERE id = :id FOR UPDATE;

-- name: count_code_try :none
UPDATE subscription_verifications SET code_tries = code_tries + 1 WHERE id = :id;
