-- Written by `make generate` from states.py and roles.py; do not edit.

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

CREATE OR REPLACE TRIGGER guard_new_jobs BEFORE INSERT ON webhook_delivery_jobs FOR EACH ROW
IF NEW.status IN ('Pending', 'Leased') AND NOT EXISTS (
    SELECT 1 FROM webhook_delivery_sagas s FORCE INDEX (PRIMARY)
    WHERE s.id = NEW.saga_id AND s.bucket = NEW.bucket
      AND s.status IN ('Pending', 'InProgress', 'PendingRetry')
      AND s.next_attempt_at = NEW.attempt_at AND s.event_id = NEW.event_id
      AND s.subscription_id = NEW.subscription_id)
THEN
    SET @surehook_refused = CONCAT('a job for saga ', NEW.saga_id,
        ' is refused: it is not for an open attempt of it');
    SIGNAL SQLSTATE 'SH003' SET MESSAGE_TEXT = @surehook_refused;
END IF//

CREATE OR REPLACE TRIGGER guard_payload BEFORE INSERT ON events FOR EACH ROW
BEGIN
    -- MySQL takes no number that a double cannot hold: without strings and numbers it must be JSON.
    IF NOT JSON_VALID(NEW.payload) AND NOT JSON_VALID(REGEXP_REPLACE(REGEXP_REPLACE(NEW.payload,
        '"(?:[^"\\\\\\x00-\\x1f]++|\\\\(?:["\\\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}'
        '|[dD](?:[0-7][0-9a-fA-F]{2}|[89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))))*+"',
        '""'), '(?<![-+.0-9a-zA-Z])-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][-+]?[0-9]+)?'
        '(?![-+.0-9a-zA-Z])', '0'))
    THEN
        SIGNAL SQLSTATE 'SH004' SET MYSQL_ERRNO = 3140,
            MESSAGE_TEXT = 'the payload is refused: it is not JSON';
    END IF;
    IF LEFT(USER(), 20) <> 'event_ingest_writer@' THEN
        IF VERSION() LIKE '%MariaDB%' AND NEW.payload REGEXP
            '"(?:[^"\\\\]++|\\\\["\\\\/bfnrtu])*+"(*SKIP)(*F)|"'
            '|[-+.](?![0-9])|[0-9][eE](?![-+0-9])'
        THEN
            SIGNAL SQLSTATE 'SH004' SET MYSQL_ERRNO = 3140,
                MESSAGE_TEXT = 'the payload is refused: it is not JSON';
        END IF;
        IF CHAR_LENGTH(NEW.payload) - CHAR_LENGTH(
            REPLACE(REPLACE(NEW.payload, '[', ''), '{', '')) > 30
            -- MySQL lets no pattern look at a large text for long, but counts levels well enough.
            AND (VERSION() LIKE '%MariaDB%' OR NOT JSON_VALID(NEW.payload)
                OR JSON_DEPTH(NEW.payload) > 30)
        THEN
            BEGIN
                -- Only the brackets outside of strings; then the innermost level away, repeatedly.
                DECLARE brackets LONGTEXT DEFAULT REPLACE(REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(
                    NEW.payload, '"(?:[^"\\\\]++|\\\\.)*+"', ''), '[^\\]\\[{}]', ''),
                    '{', '['), '}', ']');
                DECLARE level INT DEFAULT 0;
                WHILE level < 30 DO
                    SET brackets = REPLACE(brackets, '[]', ''), level = level + 1;
                END WHILE;
                IF brackets <> '' THEN
                    SIGNAL SQLSTATE 'SH004' SET MYSQL_ERRNO = 3140, MESSAGE_TEXT =
                        'the payload is refused: it is nested deeper than 30 levels';
                END IF;
            END;
        END IF;
    END IF;
END//

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

CREATE OR REPLACE TRIGGER subscription_eligibility_refuse_update BEFORE UPDATE ON subscription_eligibility FOR EACH ROW
SIGNAL SQLSTATE 'SH002'
    SET MESSAGE_TEXT = 'subscription_eligibility is append-only: UPDATE is refused'//

CREATE OR REPLACE TRIGGER subscription_eligibility_refuse_delete BEFORE DELETE ON subscription_eligibility FOR EACH ROW
SIGNAL SQLSTATE 'SH002'
    SET MESSAGE_TEXT = 'subscription_eligibility is append-only: DELETE is refused'//

CREATE OR REPLACE TRIGGER guard_rights_subscriptions BEFORE UPDATE ON subscriptions FOR EACH ROW PRECEDES subscription_rules_update
IF @@insert_id <> 0
    OR LEFT(USER(), 19) = 'subscription_admin@' AND NOT (
        NEW.id <=> OLD.id
        AND NEW.tenant <=> OLD.tenant
        AND NEW.verified <=> OLD.verified
        AND NEW.eligible_from <=> OLD.eligible_from
        AND NEW.created_at <=> OLD.created_at
        AND NEW.updated_at <=> OLD.updated_at
        AND NEW.version <=> OLD.version
        AND NEW.idempotency_key <=> OLD.idempotency_key
        AND NEW.eligible_until <=> OLD.eligible_until
        AND NEW.eligible_first <=> OLD.eligible_first
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of subscriptions denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_subscription_secrets BEFORE UPDATE ON subscription_secrets FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 19) = 'subscription_admin@' AND NOT (
        NEW.id <=> OLD.id
        AND NEW.subscription_id <=> OLD.subscription_id
        AND NEW.scheme <=> OLD.scheme
        AND NEW.sealed <=> OLD.sealed
        AND NEW.created_at <=> OLD.created_at
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of subscription_secrets denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_subscription_verifications BEFORE UPDATE ON subscription_verifications FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 22) = 'subscription_verifier@' AND NOT (
        NEW.id <=> OLD.id
        AND NEW.subscription_id <=> OLD.subscription_id
        AND NEW.callback_url <=> OLD.callback_url
        AND NEW.secret_id <=> OLD.secret_id
        AND NEW.challenge <=> OLD.challenge
        AND NEW.code <=> OLD.code
        AND NEW.created_at <=> OLD.created_at
        AND NEW.expires_at <=> OLD.expires_at
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of subscription_verifications denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_router_cursor BEFORE UPDATE ON router_cursor FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 14) = 'router_worker@' AND NOT (
        NEW.bucket <=> OLD.bucket
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of router_cursor denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_orchestrator_subscriptions BEFORE UPDATE ON orchestrator_subscriptions FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 18) = 'saga_orchestrator@' AND NOT (
        NEW.subscription_id <=> OLD.subscription_id
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of orchestrator_subscriptions denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_dead_letter_cursor BEFORE UPDATE ON dead_letter_cursor FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 21) = 'dead_letter_operator@' AND NOT (
        NEW.bucket <=> OLD.bucket
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of dead_letter_cursor denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_api_keys BEFORE UPDATE ON api_keys FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 10) = 'key_admin@' AND NOT (
        NEW.id <=> OLD.id
        AND NEW.name <=> OLD.name
        AND NEW.key_hash <=> OLD.key_hash
        AND NEW.scopes <=> OLD.scopes
        AND NEW.tenant <=> OLD.tenant
        AND NEW.created_at <=> OLD.created_at
        AND NEW.last_used_at <=> OLD.last_used_at
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of api_keys denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_processes BEFORE UPDATE ON processes FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 18) = 'process_registrar@' AND NOT (
        NEW.process_id <=> OLD.process_id
        AND NEW.component <=> OLD.component
        AND NEW.host <=> OLD.host
        AND NEW.pid <=> OLD.pid
        AND NEW.version <=> OLD.version
        AND NEW.address <=> OLD.address
        AND NEW.since <=> OLD.since
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of processes denied to this login';
END IF//

CREATE OR REPLACE TRIGGER guard_rights_system_figures BEFORE UPDATE ON system_figures FOR EACH ROW
IF @@insert_id <> 0
    OR LEFT(USER(), 18) = 'process_registrar@' AND NOT (
        NEW.name <=> OLD.name
    )
THEN
    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,
        MESSAGE_TEXT = 'UPDATE of a column of system_figures denied to this login';
END IF//

DELIMITER ;
