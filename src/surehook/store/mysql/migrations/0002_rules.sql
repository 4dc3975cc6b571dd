-- What columns do by themselves: an event's bucket, a subscription's eligibility, and losing
-- `verified` with the URL.
-- oldest program: 0.1.0

DELIMITER //

-- The bucket of an event, from a hash of its key that the writer computes: the number of buckets is
-- fixed here, so that an application which may only insert need not know it.
CREATE OR REPLACE FUNCTION surehook_bucket(hash BIGINT) RETURNS SMALLINT
    DETERMINISTIC NO SQL SQL SECURITY INVOKER
RETURN hash MOD :buckets//

CREATE OR REPLACE TRIGGER subscription_rules_insert BEFORE INSERT ON subscriptions FOR EACH ROW
BEGIN
    SET NEW.verified = NEW.verified <> 0;
    -- Nobody sets it by hand.
    SET NEW.eligible_from = IF(NEW.active AND NEW.verified, UTC_TIMESTAMP(6), NULL);
END//

-- A verified URL changes only by the verifier's swap: the staged URL moves in and its place becomes
-- empty, written by a login that may write `verified` itself. A trigger cannot ask for a right
-- here (it runs with its maker's, and USER() is only a name that an administrator may choose), but
-- the server asks before: the swap also writes verified = 2, which nobody can do without the right
-- to update that column. The 2 is never stored.
CREATE OR REPLACE TRIGGER subscription_rules_update BEFORE UPDATE ON subscriptions FOR EACH ROW
BEGIN
    SET NEW.updated_at = UTC_TIMESTAMP(6);
    IF NEW.callback_url <> OLD.callback_url AND NOT (
        NEW.verified = 2
        AND NEW.callback_url <=> OLD.pending_callback_url
        AND NEW.pending_callback_url IS NULL
    ) THEN
        SET NEW.verified = FALSE;
    END IF;
    SET NEW.verified = NEW.verified <> 0;
    -- Nobody sets it by hand.
    SET NEW.eligible_from = OLD.eligible_from;
    IF NEW.active AND NEW.verified AND NOT (
        OLD.active AND OLD.verified
        AND OLD.event_type = NEW.event_type AND OLD.tenant = NEW.tenant
    ) THEN
        SET NEW.eligible_from = UTC_TIMESTAMP(6);
    END IF;
END//

DELIMITER ;
