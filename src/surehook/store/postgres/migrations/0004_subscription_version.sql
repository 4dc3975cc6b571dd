-- Each change of a subscription has a number, so that one made from an old reading can be refused.
-- oldest program: 0.1.0

ALTER TABLE subscriptions ADD COLUMN version bigint NOT NULL DEFAULT 1;

CREATE FUNCTION surehook_subscription_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.version := OLD.version + 1;
    RETURN NEW;
END
$$;

CREATE TRIGGER subscription_version BEFORE UPDATE ON subscriptions
    FOR EACH ROW EXECUTE FUNCTION surehook_subscription_version();
