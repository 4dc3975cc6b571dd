-- The trigger that keeps the history names its schema itself.
-- oldest program: 0.1.0
--
-- A function's own search_path is the one under which it was made, and says something else in every
-- schema in which the same migrations run.

CREATE OR REPLACE FUNCTION surehook_keep_eligibility() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER AS $$
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
