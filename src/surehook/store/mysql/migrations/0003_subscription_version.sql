-- Each change of a subscription has a number, so that one made from an old reading can be refused.
-- oldest program: 0.1.0

ALTER TABLE subscriptions ADD COLUMN version BIGINT NOT NULL DEFAULT 1;

DELIMITER //

CREATE OR REPLACE TRIGGER subscription_version BEFORE UPDATE ON subscriptions FOR EACH ROW
SET NEW.version = OLD.version + 1//

DELIMITER ;
