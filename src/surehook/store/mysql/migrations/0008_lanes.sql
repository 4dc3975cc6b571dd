-- Lanes: jobs that may hang wait and run apart from the others. See docs/decisions/0025.
-- oldest program: 0.1.0
--
-- A job of an older orchestrator is in lane 0; an older worker leases from all lanes.

ALTER TABLE webhook_delivery_jobs ADD COLUMN lane SMALLINT NOT NULL DEFAULT 0;

-- Per lane: pending jobs (lease_until is NULL) in order of creation, leased ones by expiry.
ALTER TABLE webhook_delivery_jobs
    DROP KEY idx_job_status_lease,
    ADD KEY idx_job_status_lease (status, lane, lease_until, id);

-- A request is under way for long, or the last one was.
ALTER TABLE orchestrator_subscriptions ADD COLUMN slow BOOLEAN NOT NULL DEFAULT FALSE;

-- How many jobs may be open for now, below the cap; 0 = as many as the cap says.
ALTER TABLE orchestrator_subscriptions ADD COLUMN ramp INT NOT NULL DEFAULT 0;
