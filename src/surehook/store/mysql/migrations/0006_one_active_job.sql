-- At most one active job per saga. The index over open jobs, which counts them per subscription,
-- becomes the unique one (finished jobs have no open_for and are not in its way); that a job's
-- subscription is its saga's, the guard sees to.
-- oldest program: 0.1.0

ALTER TABLE webhook_delivery_jobs
    DROP KEY idx_job_open,
    ADD UNIQUE KEY idx_job_open (open_for, saga_id, bucket);
