-- Every interval in which a subscription was active and verified for a type is kept.
-- oldest program: 0.1.0
--
-- A subscription's row holds its current interval, or its last one: from eligible_from until
-- eligible_until (NULL = it is under way). Each interval that has ended is a row of
-- subscription_eligibility, written by trigger and never changed. What a row says about the time
-- before this migration is its current interval; of older ones nothing is known.

ALTER TABLE subscriptions
    ADD COLUMN eligible_until DATETIME(6),
    -- When its first interval for this tenant and event type began. (With another tenant or type it
    -- begins anew: what it was eligible for before that, it is owed no more.)
    ADD COLUMN eligible_first DATETIME(6),
    -- The router's match, answered from the index alone.
    DROP KEY idx_sub_match,
    ADD KEY idx_sub_match
        (tenant, event_type, active, verified, eligible_from, eligible_first),
    -- Whose interval has ended lately, and who has become eligible.
    ADD KEY idx_sub_eligible_until (eligible_until),
    ADD KEY idx_sub_eligible_from (eligible_from);

CREATE TABLE IF NOT EXISTS subscription_eligibility (
    id              BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    subscription_id BIGINT       NOT NULL,
    tenant          VARCHAR(100) NOT NULL,
    pattern         VARCHAR(100) NOT NULL, -- an event type
    eligible_from   DATETIME(6)  NOT NULL,
    eligible_until  DATETIME(6)  NOT NULL, -- the first moment outside
    CHECK (eligible_from < eligible_until),
    -- The last interval that began before an event: one probe, however many there are.
    KEY idx_eligibility_from (subscription_id, pattern, eligible_from),
    KEY idx_eligibility_until (eligible_until)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

-- The router's notes: events that were created while a subscription was eligible, and read when it
-- was not. They are routed when it is eligible again.
CREATE TABLE IF NOT EXISTS router_held (
    bucket          SMALLINT NOT NULL,
    subscription_id BIGINT   NOT NULL,
    event_id        BIGINT   NOT NULL,
    PRIMARY KEY (bucket, subscription_id, event_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;

DELIMITER //

CREATE OR REPLACE TRIGGER subscription_rules_insert BEFORE INSERT ON subscriptions FOR EACH ROW
BEGIN
    SET NEW.verified = NEW.verified <> 0;
    -- Nobody sets these by hand.
    SET NEW.eligible_from = IF(NEW.active AND NEW.verified, UTC_TIMESTAMP(6), NULL);
    SET NEW.eligible_until = NULL;
    SET NEW.eligible_first = NEW.eligible_from;
END//

-- A verified URL changes only by the verifier's swap: the staged URL moves in and its place becomes
-- empty, written by a login that may write `verified` itself. A trigger cannot ask for a right
-- here (it runs with its maker's, and USER() is only a name that an administrator may choose), but
-- the server asks before: the swap also writes verified = 2, which nobody can do without the right
-- to update that column. The 2 is never stored.
CREATE OR REPLACE TRIGGER subscription_rules_update BEFORE UPDATE ON subscriptions FOR EACH ROW
BEGIN
    DECLARE was_eligible BOOLEAN DEFAULT OLD.active AND OLD.verified;
    -- No interval ends before it began, or begins before the last one ended.
    DECLARE ended DATETIME(6) DEFAULT GREATEST(
        UTC_TIMESTAMP(6), IFNULL(OLD.eligible_from, UTC_TIMESTAMP(6)),
        IFNULL(OLD.eligible_until, UTC_TIMESTAMP(6)));
    SET NEW.updated_at = UTC_TIMESTAMP(6);
    SET NEW.version = OLD.version + 1;
    IF NEW.callback_url <> OLD.callback_url AND NOT (
        NEW.verified = 2
        AND NEW.callback_url <=> OLD.pending_callback_url
        AND NEW.pending_callback_url IS NULL
    ) THEN
        SET NEW.verified = FALSE;
    END IF;
    SET NEW.verified = NEW.verified <> 0;
    -- Nobody sets these by hand.
    SET NEW.eligible_from = OLD.eligible_from;
    SET NEW.eligible_until = OLD.eligible_until;
    SET NEW.eligible_first = IFNULL(
        OLD.eligible_first, IF(was_eligible, OLD.eligible_from, NULL));
    IF OLD.event_type <> NEW.event_type OR OLD.tenant <> NEW.tenant THEN
        SET was_eligible = FALSE;
        SET NEW.eligible_from = NULL;
        SET NEW.eligible_until = NULL;
        SET NEW.eligible_first = NULL;
    ELSEIF was_eligible AND NOT (NEW.active AND NEW.verified) THEN
        SET NEW.eligible_until = ended;
    END IF;
    IF NEW.active AND NEW.verified AND NOT was_eligible THEN
        SET NEW.eligible_from = ended;
        SET NEW.eligible_until = NULL;
        SET NEW.eligible_first = IFNULL(NEW.eligible_first, ended);
    END IF;
END//

CREATE OR REPLACE TRIGGER keep_eligibility AFTER UPDATE ON subscriptions FOR EACH ROW
IF OLD.active AND OLD.verified AND OLD.eligible_from < UTC_TIMESTAMP(6) AND NOT (
    NEW.active AND NEW.verified AND NEW.event_type = OLD.event_type AND NEW.tenant = OLD.tenant
) THEN
    INSERT INTO subscription_eligibility
        (subscription_id, tenant, pattern, eligible_from, eligible_until)
    VALUES (OLD.id, OLD.tenant, OLD.event_type, OLD.eligible_from, UTC_TIMESTAMP(6));
END IF//

CREATE OR REPLACE TRIGGER keep_eligibility_of_deleted AFTER DELETE ON subscriptions FOR EACH ROW
IF OLD.active AND OLD.verified AND OLD.eligible_from < UTC_TIMESTAMP(6) THEN
    INSERT INTO subscription_eligibility
        (subscription_id, tenant, pattern, eligible_from, eligible_until)
    VALUES (OLD.id, OLD.tenant, OLD.event_type, OLD.eligible_from, UTC_TIMESTAMP(6));
END IF//

DELIMITER ;
