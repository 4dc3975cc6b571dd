-- Dead letters: INSERT dead_letters for dead sagas, INSERT new sagas when one is requeued.

-- name: dead_sagas :many
-- One page of dead sagas in order of death, each with whether it is written down.
SELECT s.died_at, s.id, (
    SELECT d.id FROM dead_letters d FORCE INDEX (idx_dead_saga)
    WHERE d.saga_id = s.id AND d.bucket = :bucket
) IS NOT NULL AS written
FROM webhook_delivery_sagas s FORCE INDEX (idx_saga_dead)
WHERE s.bucket = :bucket AND s.died_at >= :after AND (s.died_at > :after OR s.id > :after_id)
ORDER BY s.died_at, s.id LIMIT :count;

-- name: unwritten :many
-- What there is to write down of these sagas; one that is dead never changes again.
SELECT s.id, s.event_id, s.subscription_id, s.final_error_code, s.updated_at
FROM webhook_delivery_sagas s FORCE INDEX (PRIMARY)
STRAIGHT_JOIN events e ON e.id = s.event_id AND e.bucket = s.bucket
WHERE s.bucket = :bucket AND s.id IN :saga_ids AND s.status = 'DeadLettered' AND NOT EXISTS (
    SELECT 1 FROM dead_letters d FORCE INDEX (idx_dead_saga)
    WHERE d.saga_id = s.id AND d.bucket = :bucket)
ORDER BY s.id;

-- name: write_dead_letters :none
-- One row of many (write_rows). Its values stand there, but for the payload, which never leaves the
-- server: an INSERT … SELECT would keep every other insert into the table out until it ends. The
-- unique saga_id refuses a second row, and with it all of them.
INSERT INTO dead_letters
    (saga_id, event_id, subscription_id, final_error_code, failed_at, bucket, payload_snapshot)
VALUES (:saga_id, :event_id, :subscription_id, :final_error_code, :failed_at, :bucket,
    (SELECT payload FROM events WHERE id = :event_id AND bucket = :bucket));

-- name: read_written :many
SELECT id, saga_id, event_id, subscription_id, final_error_code
FROM dead_letters FORCE INDEX (idx_dead_saga)
WHERE bucket = :bucket AND saga_id IN :saga_ids
ORDER BY saga_id;

-- name: last_attempts :many
-- With who made the last attempt, for the log.
SELECT saga_id, id, worker_id, lease_until
FROM webhook_delivery_jobs FORCE INDEX (uniq_job_saga_attempt)
WHERE bucket = :bucket AND saga_id IN :saga_ids
ORDER BY saga_id, attempt_at;

-- name: requeueable :many
-- Dead letters that have no new saga yet and whose subscription wants it.
SELECT d.event_id, d.subscription_id, d.id, d.bucket
FROM dead_letters d FORCE INDEX (PRIMARY)
JOIN subscriptions s ON s.id = d.subscription_id AND s.active AND s.verified
WHERE d.bucket = :bucket AND d.id IN :dead_letter_ids AND NOT EXISTS (
    SELECT 1 FROM webhook_delivery_sagas n FORCE INDEX (uniq_saga_event_subscription)
    WHERE n.event_id = d.event_id AND n.subscription_id = d.subscription_id
      AND n.requeued_from = d.id AND n.bucket = :bucket)
ORDER BY d.id;

-- name: requeue :none
-- A new saga beside the old one, once per dead letter; no old row is touched, no job made. One that
-- appeared meanwhile refuses the whole statement: everything is looked at again.
INSERT INTO webhook_delivery_sagas (event_id, subscription_id, requeued_from, bucket)
VALUES :given;
