-- Verifier: INSERT and UPDATE verifications, UPDATE subscriptions (verified and the two URLs).

-- name: to_be_proved :one
-- The URL that is to be proved and the newest shared secret.
SELECT COALESCE(s.pending_callback_url, s.callback_url), (
        SELECT max(x.id) FROM subscription_secrets x
        WHERE x.subscription_id = s.id AND x.scheme = 'v1'
          AND (x.expires_at IS NULL OR x.expires_at > surehook_now()))
FROM subscriptions s
WHERE s.id = :subscription_id AND (:tenant::varchar IS NULL OR s.tenant = :tenant);

-- name: request_verification :one
-- Bound to that URL and secret: if one of them changes meanwhile, this proves nothing.
INSERT INTO subscription_verifications
    (subscription_id, callback_url, secret_id, challenge, code, expires_at)
VALUES (:subscription_id, :callback_url, :secret_id, :challenge, :code,
    surehook_now() + interval '1 second' * :lifetime_seconds::float8)
RETURNING id;

-- name: any_verification :one
SELECT EXISTS (
    SELECT 1 FROM subscription_verifications
    WHERE verified_at IS NULL AND attempts < :attempts_max AND expires_at > surehook_now()
      AND (last_attempt_at IS NULL
           OR last_attempt_at < surehook_now() - interval '1 second' * :pause_seconds::float8)
) AS waits;

-- name: next_verification :one
SELECT id, subscription_id, callback_url, secret_id, challenge, code
FROM subscription_verifications
WHERE verified_at IS NULL AND attempts < :attempts_max AND expires_at > surehook_now()
  AND (last_attempt_at IS NULL
       OR last_attempt_at < surehook_now() - interval '1 second' * :pause_seconds::float8)
ORDER BY id LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: take :none
-- Taken by counting its attempt.
UPDATE subscription_verifications
SET attempts = attempts + 1, last_attempt_at = surehook_now(), last_result = 'sending',
    last_reason = NULL
WHERE id = :id;

-- name: secret_of :one
SELECT sealed, surehook_now() FROM subscription_secrets WHERE id = :secret_id;

-- name: report :none
UPDATE subscription_verifications
SET last_result = :result, last_reason = :reason
WHERE id = :id AND verified_at IS NULL;

-- name: verify_subscription :one
-- Only if URL and secret are still those that were challenged. A staged URL moves in by the same
-- statement, so that nothing stops meanwhile.
UPDATE subscriptions s
SET verified = true, callback_url = v.callback_url, pending_callback_url = NULL
FROM subscription_verifications v
WHERE v.id = :id AND s.id = v.subscription_id
  AND v.verified_at IS NULL AND v.expires_at > surehook_now()
  AND v.callback_url = COALESCE(s.pending_callback_url, s.callback_url)
  AND v.secret_id = (
      SELECT max(x.id) FROM subscription_secrets x
      WHERE x.subscription_id = s.id AND x.scheme = 'v1'
        AND (x.expires_at IS NULL OR x.expires_at > surehook_now()))
RETURNING s.id;

-- name: mark_verified :none
UPDATE subscription_verifications
SET verified_at = surehook_now(), last_result = :result, last_reason = :reason
WHERE id = :id;

-- name: open_verification :one
-- The newest one that still waits for its code.
SELECT v.id FROM subscription_verifications v
JOIN subscriptions s ON s.id = v.subscription_id
WHERE v.subscription_id = :subscription_id AND (:tenant::varchar IS NULL OR s.tenant = :tenant)
  AND v.verified_at IS NULL AND v.expires_at > surehook_now()
ORDER BY v.id DESC LIMIT 1;

-- name: lock_verification :one
SELECT code, code_tries FROM subscription_verifications WHERE id = :id FOR UPDATE;

-- name: count_code_try :none
UPDATE subscription_verifications SET code_tries = code_tries + 1 WHERE id = :id;

-- name: read :one Verification
SELECT {Verification} FROM subscription_verifications WHERE id = :id;

-- name: sealed_headers :many
-- Their names are shown to the owner, their values never.
SELECT id, custom_headers FROM subscriptions
WHERE id = ANY (:subscription_ids::bigint[]) AND custom_headers IS NOT NULL;

-- name: trial_target :one
-- What a test event needs: where to, and how long it may take.
SELECT COALESCE(pending_callback_url, callback_url), event_type, request_timeout_seconds,
    custom_headers, surehook_now()
FROM subscriptions
WHERE id = :subscription_id AND (:tenant::varchar IS NULL OR tenant = :tenant);

-- name: trial_secrets :many
SELECT sealed FROM subscription_secrets
WHERE subscription_id = :subscription_id AND (expires_at IS NULL OR expires_at > surehook_now())
ORDER BY id DESC;
