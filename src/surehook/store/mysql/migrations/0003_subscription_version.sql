-- Each change of a subscription has a number, so that one made from an old reading can be refused.
-- subscription_rules_update counts it (0004): a trigger of its own could come before the guard,
-- which would take the new number for a change by the login.
-- oldest program: 0.1.0

ALTER TABLE subscriptions ADD COLUMN version BIGINT NOT NULL DEFAULT 1;
