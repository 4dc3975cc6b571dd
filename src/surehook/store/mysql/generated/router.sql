-- Written by `make generate` from store/postgres/router.sql; do not edit.

-- name: recently_eligible :many
SELECT
  id,
  eligible_from,
  tenant,
  event_type
FROM subscriptions
WHERE
  active
  AND verified
  AND eligible_from > UTC_TIMESTAMP(6) - INTERVAL :seconds SECOND;

-- name: recently_ended :many
SELECT
  s.id,
  h.eligible_from,
  s.tenant,
  s.event_type,
  h.eligible_until
FROM subscription_eligibility AS h FORCE INDEX (idx_eligibility_until)
JOIN subscriptions AS s
  ON s.id = h.subscription_id
  AND s.tenant = h.tenant
  AND s.event_type = h.pattern
  AND s.eligible_first <= h.eligible_from
WHERE
  h.eligible_until > UTC_TIMESTAMP(6) - INTERVAL :seconds SECOND
  AND h.eligible_from > UTC_TIMESTAMP(6) - INTERVAL :seconds SECOND;

-- name: held_for :many
SELECT
  h.event_id,
  h.subscription_id
FROM router_held AS h
JOIN subscriptions AS s
  ON s.id = h.subscription_id AND s.active AND s.verified
WHERE
  h.bucket = :bucket AND h.subscription_id IN :subscription_ids
LIMIT :count;

-- name: held :many
SELECT
  h.event_id,
  h.subscription_id
FROM router_held AS h
JOIN subscriptions AS s
  ON s.id = h.subscription_id AND s.active AND s.verified
WHERE
  h.bucket = :bucket
LIMIT :count;
