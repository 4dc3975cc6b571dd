-- Written by `make generate` from states.py; do not edit.

DELIMITER //

CREATE OR REPLACE TRIGGER guard_saga_moves BEFORE UPDATE ON webhook_delivery_sagas FOR EACH ROW
IF (2946 >> (OLD.status * 5 + NEW.status - 6)) & 1 = 0
    OR NEW.next_attempt_at <> OLD.next_attempt_at
    OR LEFT(USER(), 18) <> 'saga_orchestrator@'
THEN
    IF (2946 >> (OLD.status * 5 + NEW.status - 6)) & 1 = 0
        OR NEW.id <> OLD.id
        OR NEW.event_id <> OLD.event_id
        OR NEW.subscription_id <> OLD.subscription_id
        OR NEW.created_at <> OLD.created_at
        OR NEW.requeued_from <> OLD.requeued_from
        OR NEW.bucket <> OLD.bucket
        OR NEW.next_attempt_at < OLD.next_attempt_at
        OR NEW.next_attempt_at <> OLD.next_attempt_at AND NEW.status = 'InProgress'
    THEN
        SET @surehook_refused = CONCAT('webhook_delivery_sagas ', OLD.id, ': ', OLD.status,
            ' to ', NEW.status, ' is not a permitted move');
        SIGNAL SQLSTATE 'SH001' SET MESSAGE_TEXT = @surehook_refused;
    END IF;
END IF//

CREATE OR REPLACE TRIGGER guard_job_moves BEFORE UPDATE ON webhook_delivery_jobs FOR EACH ROW
IF (214 >> (OLD.status * 4 + NEW.status - 5)) & 1 = 0
    OR LEFT(USER(), 11) <> 'job_worker@' AND LEFT(USER(), 14) <> 'lease_cleaner@'
THEN
    IF (214 >> (OLD.status * 4 + NEW.status - 5)) & 1 = 0
        OR NEW.id <> OLD.id
        OR NEW.saga_id <> OLD.saga_id
        OR NEW.event_id <> OLD.event_id
        OR NEW.subscription_id <> OLD.subscription_id
        OR NEW.attempt_at <> OLD.attempt_at
        OR NEW.created_at <> OLD.created_at
        OR NEW.bucket <> OLD.bucket
    THEN
        SET @surehook_refused = CONCAT('webhook_delivery_jobs ', OLD.id, ': ', OLD.status,
            ' to ', NEW.status, ' is not a permitted move');
        SIGNAL SQLSTATE 'SH001' SET MESSAGE_TEXT = @surehook_refused;
    END IF;
END IF//

CREATE OR REPLACE TRIGGER events_refuse_update BEFORE UPDATE ON events FOR EACH ROW
SIGNAL SQLSTATE 'SH002'
    SET MESSAGE_TEXT = 'events is append-only: UPDATE is refused'//

CREATE OR REPLACE TRIGGER events_refuse_delete BEFORE DELETE ON events FOR EACH ROW
SIGNAL SQLSTATE 'SH002'
    SET MESSAGE_TEXT = 'events is append-only: DELETE is refused'//

CREATE OR REPLACE TRIGGER dead_letters_refuse_update BEFORE UPDATE ON dead_letters FOR EACH ROW
SIGNAL SQLSTATE 'SH002'
    SET MESSAGE_TEXT = 'dead_letters is append-only: UPDATE is refused'//

CREATE OR REPLACE TRIGGER dead_letters_refuse_delete BEFORE DELETE ON dead_letters FOR EACH ROW
SIGNAL SQLSTATE 'SH002'
    SET MESSAGE_TEXT = 'dead_letters is append-only: DELETE is refused'//

DELIMITER ;
