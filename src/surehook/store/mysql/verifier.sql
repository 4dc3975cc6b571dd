-- Verifier: INSERT and UPDATE verifications, UPDATE subscriptions (verified and the two URLs).

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
