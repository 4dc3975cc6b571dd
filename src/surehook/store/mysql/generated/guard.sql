-- Written by `make generate` from states.py; do not edit.

DELIMITER //

CREATE OR REPLACE TRIGGER guard_saga_moves BEFORE UPDATE ON webhook_delivery_sagas FOR EACH ROW
IF ((19972 >> (OLD.status * 6 + NEW.status - 6)) & 1) IS NOT TRUE
    OR (NEW.next_attempt_at = OLD.next_attempt_at) IS NOT TRUE
    OR LEFT(USER(), 18) <> 'saga_orchestrator@'
THEN
    IF ((19972 >> (OLD.status * 6 + NEW.status - 6)) & 1) IS NOT TRUE
        OR (NEW.id = OLD.id) IS NOT TRUE
        OR (NEW.event_id = OLD.event_id) IS NOT TRUE
        OR (NEW.subscription_id = OLD.subscription_id) IS NOT TRUE
        OR (NEW.created_at = OLD.created_at) IS NOT TRUE
        OR (NEW.requeued_from = OLD.requeued_from) IS NOT TRUE
        OR (NEW.bucket = OLD.bucket) IS NOT TRUE
        OR (NEW.next_attempt_at >= OLD.next_attempt_at) IS NOT TRUE
        OR NEW.next_attempt_at <> OLD.next_attempt_at AND NEW.status = 'InProgress'
    THEN
        SET @surehook_refused = CONCAT('webhook_delivery_sagas ', OLD.id, ': ', OLD.status,
            ' to ', IFNULL(NEW.status, 'NULL'), ' is not a permitted move');
        SIGNAL SQLSTATE 'SH001' SET MESSAGE_TEXT = @surehook_refused;
    END IF;
END IF//

CREATE OR REPLACE TRIGGER guard_job_moves BEFORE UPDATE ON webhook_delivery_jobs FOR EACH ROW
IF ((844 >> (OLD.status * 5 + NEW.status - 5)) & 1) IS NOT TRUE
    OR LEFT(USER(), 11) <> 'job_worker@' AND LEFT(USER(), 14) <> 'lease_cleaner@'
THEN
    IF ((844 >> (OLD.status * 5 + NEW.status - 5)) & 1) IS NOT TRUE
        OR (NEW.id = OLD.id) IS NOT TRUE
        OR (NEW.saga_id = OLD.saga_id) IS NOT TRUE
        OR (NEW.event_id = OLD.event_id) IS NOT TRUE
        OR (NEW.subscription_id = OLD.subscription_id) IS NOT TRUE
        OR (NEW.attempt_at = OLD.attempt_at) IS NOT TRUE
        OR (NEW.created_at = OLD.created_at) IS NOT TRUE
        OR (NEW.bucket = OLD.bucket) IS NOT TRUE
    THEN
        SET @surehook_refused = CONCAT('webhook_delivery_jobs ', OLD.id, ': ', OLD.status,
            ' to ', IFNULL(NEW.status, 'NULL'), ' is not a permitted move');
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
