-- What a subscription's columns do by themselves: eligibility, and losing `verified` with the URL.
-- oldest program: 0.1.0

CREATE FUNCTION surehook_subscription_rules() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was_eligible boolean := false;
BEGIN
    NEW.eligible_from := NULL; -- nobody sets it by hand
    IF TG_OP = 'UPDATE' THEN
        NEW.updated_at := surehook_now();
        NEW.eligible_from := OLD.eligible_from;
        was_eligible := OLD.active AND OLD.verified
            AND OLD.event_type = NEW.event_type AND OLD.tenant = NEW.tenant;
        -- A verified URL changes only by the verifier's swap: the staged URL moves in and its
        -- place becomes empty, written by a login that may write `verified` itself.
        IF NEW.callback_url IS DISTINCT FROM OLD.callback_url AND NOT (
            NEW.callback_url IS NOT DISTINCT FROM OLD.pending_callback_url
            AND NEW.pending_callback_url IS NULL
            AND has_column_privilege(TG_RELID, 'verified', 'UPDATE')
        ) THEN
            NEW.verified := false;
        END IF;
    END IF;
    IF NEW.active AND NEW.verified AND NOT was_eligible THEN
        NEW.eligible_from := surehook_now();
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER subscription_rules BEFORE INSERT OR UPDATE ON subscriptions
    FOR EACH ROW EXECUTE FUNCTION surehook_subscription_rules();
