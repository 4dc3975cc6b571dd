-- Lanes: jobs that may hang wait and run apart from the others. See docs/decisions/0025.
-- oldest program: 0.1.0
--
-- A job of an older orchestrator is in lane 0; an older worker leases from all lanes.

ALTER TABLE webhook_delivery_jobs ADD COLUMN lane smallint NOT NULL DEFAULT 0;

-- Per lane: pending jobs in order of creation, leased ones in order of expiry. An entry is as large
-- as it was: the lane fits into what was padding.
DROP INDEX idx_job_status_lease;
CREATE INDEX idx_job_status_lease ON webhook_delivery_jobs (status, lane, lease_until, id)
    WHERE status IN ('Pending', 'Leased');

ALTER TABLE orchestrator_subscriptions
    -- A request is under way for long, or the last one was.
    ADD COLUMN slow boolean NOT NULL DEFAULT false,
    -- How many jobs may be open for now, below the cap; 0 = as many as the cap says.
    ADD COLUMN ramp integer NOT NULL DEFAULT 0;

-- An index that is made on an empty table takes back the statistics of 0002.
DO $$
BEGIN
    IF EXISTS (SELECT FROM webhook_delivery_jobs) THEN
        RETURN;
    END IF;
    INSERT INTO webhook_delivery_jobs
        (id, saga_id, event_id, subscription_id, status, attempt_at, lease_until, created_at,
         bucket)
    SELECT -g, -g, -g, g % 97,
        (CASE g / :buckets % 40 WHEN 0 THEN 'Pending' WHEN 1 THEN 'Leased' WHEN 2 THEN 'Failed'
            ELSE 'Completed' END)::job_status,
        surehook_now() - interval '1 minute' * g, surehook_now() - interval '1 minute' * g,
        surehook_now() - interval '1 minute' * g, g % :buckets
    FROM generate_series(1, 400 * :buckets) AS g;
    ANALYZE webhook_delivery_jobs;
    DELETE FROM webhook_delivery_jobs;
END
$$;
