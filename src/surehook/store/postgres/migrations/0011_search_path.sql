-- Functions do the same whatever search path the session has that makes them run.
-- oldest program: 0.1.0
--
-- A login chooses its own search path. With an empty one no subscription could be changed; with a
-- schema of its own in front of pg_catalog it could put functions and operators in the place of
-- those that are meant, and the trigger that keeps the history calls them with its owner's rights.
-- What is ours is named with the schema of the trigger's table: the same migrations run in any.

-- No setting of their own for these two: they would not be inlined any more.
CREATE OR REPLACE FUNCTION surehook_now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT pg_catalog.statement_timestamp()';

CREATE OR REPLACE FUNCTION surehook_bucket(hash bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT (hash OPERATOR(pg_catalog.%) :buckets)::smallint';

CREATE OR REPLACE FUNCTION surehook_subscription_version() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.version := OLD.version + 1;
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION surehook_subscription_rules() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was_eligible boolean := false;
    moment timestamptz;
    ended timestamptz; -- no interval ends before it began, or begins before the last one ended
BEGIN
    EXECUTE format('SELECT %I.surehook_now()', TG_TABLE_SCHEMA) INTO moment;
    -- Nobody sets these by hand.
    NEW.eligible_from := NULL;
    NEW.eligible_until := NULL;
    NEW.eligible_first := NULL;
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := moment;
        NEW.eligible_from := OLD.eligible_from;
        NEW.eligible_until := OLD.eligible_until;
        was_eligible := OLD.active AND OLD.verified;
        NEW.eligible_first := COALESCE(
            OLD.eligible_first, CASE WHEN was_eligible THEN OLD.eligible_from END);
        -- A verified URL changes only by the verifier's swap: the staged URL moves in and its
        -- place becomes empty, written by a login that may write `verified` itself.
        IF NEW.callback_url IS DISTINCT FROM OLD.callback_url AND NOT (
            NEW.callback_url IS NOT DISTINCT FROM OLD.pending_callback_url
            AND NEW.pending_callback_url IS NULL
            AND has_column_privilege(TG_RELID, 'verified', 'UPDATE')
        ) THEN
            NEW.verified := false;
        END IF;
        ended := GREATEST(moment, OLD.eligible_from, OLD.eligible_until);
        IF OLD.event_type <> NEW.event_type OR OLD.tenant <> NEW.tenant THEN
            was_eligible := false;
            NEW.eligible_from := NULL;
            NEW.eligible_until := NULL;
            NEW.eligible_first := NULL;
        ELSIF was_eligible AND NOT (NEW.active AND NEW.verified) THEN
            NEW.eligible_until := ended;
        END IF;
    END IF;
    IF NEW.active AND NEW.verified AND NOT was_eligible THEN
        NEW.eligible_from := GREATEST(moment, ended);
        NEW.eligible_until := NULL;
        NEW.eligible_first := COALESCE(NEW.eligible_first, NEW.eligible_from);
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION surehook_keep_eligibility() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format(
        'INSERT INTO %1$I.subscription_eligibility '
        '(subscription_id, tenant, pattern, eligible_from, eligible_until) '
        'SELECT $1, $2, $3, $4, %1$I.surehook_now() WHERE $4 < %1$I.surehook_now()',
        TG_TABLE_SCHEMA)
    USING OLD.id, OLD.tenant, OLD.event_type, OLD.eligible_from;
    RETURN NULL;
END
$$;
