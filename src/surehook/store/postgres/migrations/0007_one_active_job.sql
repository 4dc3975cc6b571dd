-- At most one active job per saga. The index over open jobs, which counts them per subscription,
-- becomes the unique one; that a job's subscription is its saga's, the guard sees to.
-- oldest program: 0.1.0

DROP INDEX idx_job_open;
-- (Its predicate matches only the count's own words, as before.)
CREATE UNIQUE INDEX idx_job_open ON webhook_delivery_jobs (subscription_id, saga_id, bucket)
    WHERE (status IN ('Leased', 'Pending')) IS TRUE;

-- An index that is made on an empty table forgets what 0002 taught about it.
INSERT INTO webhook_delivery_jobs
    (id, saga_id, event_id, subscription_id, status, attempt_at, lease_until, created_at, bucket)
SELECT -g, -g, -g, g % 97,
    (CASE g / :buckets % 40 WHEN 0 THEN 'Pending' WHEN 1 THEN 'Leased' WHEN 2 THEN 'Failed'
        ELSE 'Completed' END)::job_status,
    surehook_now() - interval '1 minute' * g, surehook_now() - interval '1 minute' * g,
    surehook_now() - interval '1 minute' * g, g % :buckets
FROM generate_series(1, 400 * :buckets) AS g
WHERE NOT EXISTS (SELECT 1 FROM webhook_delivery_jobs);

ANALYZE webhook_delivery_jobs;

DELETE FROM webhook_delivery_jobs WHERE id < 0;
