-- Written by `make generate` from states.py; do not edit.

CREATE OR REPLACE FUNCTION surehook_refuse_move() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'SH001',
        MESSAGE = format('%s %s: %s to %s is not a permitted move', TG_ARGV[0], OLD.id,
                         OLD.status, NEW.status),
        HINT = 'docs/states.md lists the permitted moves; none changes which row or attempt it is';
END
$$;

CREATE OR REPLACE FUNCTION surehook_refuse_change() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'SH002',
        MESSAGE = format('%s is append-only: %s is refused', TG_TABLE_NAME, TG_OP);
END
$$;

CREATE OR REPLACE TRIGGER guard_moves BEFORE UPDATE ON webhook_delivery_sagas
    FOR EACH ROW WHEN (NOT (
        OLD.status = 'Pending' AND NEW.status = 'InProgress'
        OR OLD.status = 'InProgress' AND NEW.status = 'Completed'
        OR OLD.status = 'InProgress' AND NEW.status = 'PendingRetry'
        OR OLD.status = 'PendingRetry' AND NEW.status = 'InProgress'
        OR OLD.status = 'InProgress' AND NEW.status = 'DeadLettered'
    )
    OR (NEW.id, NEW.event_id, NEW.subscription_id, NEW.created_at, NEW.requeued_from, NEW.bucket)
        IS DISTINCT FROM (OLD.id, OLD.event_id, OLD.subscription_id, OLD.created_at, OLD.requeued_from, OLD.bucket)
    -- next_attempt_at names the attempt: it never goes back, and starting keeps it
    OR NEW.next_attempt_at < OLD.next_attempt_at
    OR NEW.status = 'InProgress' AND NEW.next_attempt_at <> OLD.next_attempt_at)
    EXECUTE FUNCTION surehook_refuse_move('webhook_delivery_sagas');

CREATE OR REPLACE TRIGGER guard_moves BEFORE UPDATE ON webhook_delivery_jobs
    FOR EACH ROW WHEN (NOT (
        OLD.status = 'Pending' AND NEW.status = 'Leased'
        OR OLD.status = 'Leased' AND NEW.status = 'Completed'
        OR OLD.status = 'Leased' AND NEW.status = 'Failed'
        OR OLD.status = 'Leased' AND NEW.status = 'Pending'
        OR OLD.status = 'Pending' AND NEW.status = 'Completed'
    )
    OR (NEW.id, NEW.saga_id, NEW.event_id, NEW.subscription_id, NEW.attempt_at, NEW.created_at, NEW.bucket)
        IS DISTINCT FROM (OLD.id, OLD.saga_id, OLD.event_id, OLD.subscription_id, OLD.attempt_at, OLD.created_at, OLD.bucket))
    EXECUTE FUNCTION surehook_refuse_move('webhook_delivery_jobs');

-- A job is for the attempt that its saga has open, and for no other. One look at all the rows of a
-- statement: a trigger per row costs several times as much. Which saga it is, is asked by its key
-- alone; the rest cannot become a condition of another index behind an outer join.
CREATE OR REPLACE FUNCTION surehook_refuse_job() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    wrong bigint;
BEGIN
    SELECT j.saga_id INTO wrong
    FROM new_jobs j
    LEFT JOIN webhook_delivery_sagas s ON s.id = j.saga_id AND s.bucket = j.bucket
    WHERE j.status IN ('Pending', 'Leased')
      AND (s.status IN ('Pending', 'InProgress', 'PendingRetry')
           AND s.next_attempt_at = j.attempt_at AND s.event_id = j.event_id
           AND s.subscription_id = j.subscription_id) IS NOT TRUE
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SH003',
            MESSAGE = format('a job for saga %s is refused: it is not for an open attempt of it',
                             wrong),
            HINT = 'it has the attempt, event and subscription of a saga that is not finished';
    END IF;
    RETURN NULL;
END
$$;

-- Statement triggers see TRUNCATE too, but each partition needs its own.
DO $$
DECLARE
    jobs regclass;
    append_only regclass;
BEGIN
    FOR jobs IN
        SELECT 'webhook_delivery_jobs'::regclass
        UNION ALL
        SELECT inhrelid FROM pg_inherits WHERE inhparent = 'webhook_delivery_jobs'::regclass
    LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER guard_new AFTER INSERT ON %s '
            'REFERENCING NEW TABLE AS new_jobs '
            'FOR EACH STATEMENT EXECUTE FUNCTION surehook_refuse_job()', jobs);
    END LOOP;
    FOR append_only IN
        SELECT oid FROM pg_class
        WHERE oid IN ('events'::regclass, 'dead_letters'::regclass,
            'subscription_eligibility'::regclass)
        UNION ALL
        SELECT inhrelid FROM pg_inherits
        WHERE inhparent IN ('events'::regclass, 'dead_letters'::regclass)
    LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE '
            'ON %s FOR EACH STATEMENT EXECUTE FUNCTION surehook_refuse_change()', append_only);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION surehook_refuse_payload() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given text := NEW.payload;
    why text;
BEGIN
    IF strpos(given, '\u') > 0 AND regexp_replace(
        replace(given, '\\', ''),
        '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g'
    ) ~ '\\u[dD][89a-fA-F]' THEN
        why := 'it contains an unpaired surrogate';
    ELSIF length(given) - length(translate(given, '[{', '')) > 30 THEN
        -- Only the brackets outside of strings; then the innermost level away, again and again.
        given := translate(regexp_replace(
            regexp_replace(given, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'), '{}', '[]');
        FOR level IN 1 .. 30 LOOP
            given := replace(given, '[]', '');
        END LOOP;
        IF given <> '' THEN
            why := 'it is nested deeper than 30 levels';
        END IF;
    END IF;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'SH004', MESSAGE = 'the payload is refused: ' || why;
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER guard_payload BEFORE INSERT ON events
    FOR EACH ROW WHEN (current_user <> 'event_ingest_writer')
    EXECUTE FUNCTION surehook_refuse_payload();
