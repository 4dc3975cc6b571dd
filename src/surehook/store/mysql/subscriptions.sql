-- Subscription API: INSERT and UPDATE subscriptions (never `verified`), INSERT secrets, UPDATE
-- their expiry.

-- name: update_subscription :none
-- Only what is named in :changed changes, so that two changes of different settings at once both
-- hold. A new URL is staged while the old one is verified and works; an unverified one just takes
-- it. (The staged one comes first: what is set here is seen by what stands behind it.)
UPDATE subscriptions
SET pending_callback_url = CASE
        WHEN NOT FIND_IN_SET('callback_url', :changed) THEN pending_callback_url
        WHEN verified AND :callback_url <> callback_url THEN :callback_url END,
    callback_url = CASE WHEN FIND_IN_SET('callback_url', :changed) AND NOT verified
        THEN :callback_url ELSE callback_url END,
    {Subscription:changes}
WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant)
  AND (:versions IS NULL OR FIND_IN_SET(version, :versions));
