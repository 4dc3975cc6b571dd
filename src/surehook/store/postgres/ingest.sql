-- Ingest: INSERT events, and nothing else.

-- name: insert_events :many
-- One INSERT for all requests that wait: they share its commit. Rows come back in order of input.
INSERT INTO events (event_type, payload, tenant, bucket)
SELECT event_type, payload, tenant, bucket
FROM unnest(:event_types::varchar[], :payloads::json[], :tenants::varchar[], :buckets::smallint[])
    AS given (event_type, payload, tenant, bucket)
RETURNING id, created_at;

-- name: insert_keyed_events :many
-- Sorted by key, so that two of these never wait for each other in a circle; and so all rows are
-- known, and the patience with it, before the first is written. A key that is there already gives
-- no row.
WITH limits AS MATERIALIZED (SELECT set_config('lock_timeout', :patience, true))
INSERT INTO events (event_type, payload, tenant, external_id, bucket)
SELECT event_type, payload, tenant, external_id, bucket
FROM limits, unnest(:event_types::varchar[], :payloads::json[], :tenants::varchar[],
            :external_ids::varchar[], :buckets::smallint[])
    AS given (event_type, payload, tenant, external_id, bucket)
ORDER BY tenant, external_id
ON CONFLICT DO NOTHING
RETURNING tenant, external_id, id, created_at;

-- name: find_keyed_events :many
-- What is stored under these keys, to tell a repetition from a conflict.
SELECT e.tenant, e.external_id, e.id, e.created_at, e.event_type, e.payload
FROM unnest(:tenants::varchar[], :external_ids::varchar[], :buckets::smallint[])
    AS given (tenant, external_id, bucket)
JOIN events e ON e.tenant = given.tenant AND e.external_id = given.external_id
    AND e.bucket = given.bucket;
