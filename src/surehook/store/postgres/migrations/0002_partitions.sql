-- One partition per bucket where there are several, autovacuum that keeps up with a queue, and
-- statistics to begin with.
-- oldest program: 0.1.0

DO $$
DECLARE
    hot text;
    part text;
BEGIN
    FOREACH hot IN ARRAY ARRAY['events', 'webhook_delivery_sagas', 'webhook_delivery_jobs',
                               'dead_letters']
    LOOP
        FOR bucket IN 0 .. :buckets - 1 LOOP
            part := hot;
            IF :buckets > 1 THEN
                part := format('%s_b%s', hot, bucket);
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES IN (%s)',
                               part, hot, bucket);
            END IF;
            EXECUTE format('ALTER TABLE %I ALTER COLUMN bucket SET (n_distinct = 1)', part);
            -- Every delivery rewrites its saga twice and its job twice: vacuum early and at full
            -- speed, or the partial indexes grow with dead entries.
            IF hot IN ('webhook_delivery_sagas', 'webhook_delivery_jobs') THEN
                EXECUTE format('ALTER TABLE %I SET (autovacuum_vacuum_scale_factor = 0.02, '
                    'autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, '
                    'autovacuum_analyze_scale_factor = 0.1)', part);
            END IF;
        END LOOP;
    END LOOP;
END
$$;

-- The bucket of an event, from a hash of its key that the writer computes: the number of buckets is
-- fixed here, so that an application which may only insert need not know it. Inlined: it costs
-- nothing.
CREATE FUNCTION surehook_bucket(hash bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT (hash % :buckets)::smallint';

-- The default, said aloud for servers whose default privileges were narrowed: whoever inserts an
-- event calls both.
GRANT EXECUTE ON FUNCTION surehook_now(), surehook_bucket(bigint) TO PUBLIC;

-- Without statistics the planner takes `bucket = …` for very selective and scans whole indexes
-- that merely end in it. A few rows that were analyzed and deleted again teach it better until
-- there are real ones; an empty table keeps what it learned.
INSERT INTO events (id, event_type, created_at, payload, bucket, xid)
SELECT -g, 'x', surehook_now() - interval '1 minute' * g, '{}', g % :buckets, g::text::xid8
FROM generate_series(1, 400 * :buckets) AS g;

INSERT INTO webhook_delivery_sagas
    (id, event_id, subscription_id, status, next_attempt_at, created_at, updated_at, bucket)
SELECT -g, -g, g % 97,
    (CASE g / :buckets % 40 WHEN 0 THEN 'Pending' WHEN 1 THEN 'InProgress'
        WHEN 2 THEN 'PendingRetry' WHEN 3 THEN 'DeadLettered' ELSE 'Completed' END)::saga_status,
    surehook_now() - interval '1 minute' * g, surehook_now() - interval '1 minute' * g,
    surehook_now() - interval '1 minute' * g, g % :buckets
FROM generate_series(1, 400 * :buckets) AS g;

INSERT INTO webhook_delivery_jobs
    (id, saga_id, event_id, subscription_id, status, attempt_at, lease_until, created_at, bucket)
SELECT -g, -g, -g, g % 97,
    (CASE g / :buckets % 40 WHEN 0 THEN 'Pending' WHEN 1 THEN 'Leased' WHEN 2 THEN 'Failed'
        ELSE 'Completed' END)::job_status,
    surehook_now() - interval '1 minute' * g, surehook_now() - interval '1 minute' * g,
    surehook_now() - interval '1 minute' * g, g % :buckets
FROM generate_series(1, 400 * :buckets) AS g;

INSERT INTO dead_letters
    (id, saga_id, event_id, subscription_id, failed_at, payload_snapshot, bucket)
SELECT -g, -g, -g, g % 97, surehook_now() - interval '1 minute' * g, '{}', g % :buckets
FROM generate_series(1, 400 * :buckets) AS g;

ANALYZE events, webhook_delivery_sagas, webhook_delivery_jobs, dead_letters;

DELETE FROM events;
DELETE FROM webhook_delivery_sagas;
DELETE FROM webhook_delivery_jobs;
DELETE FROM dead_letters;
