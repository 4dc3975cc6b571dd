-- Two texts of an attempt, two columns: response_excerpt is what the endpoint answered,
-- failure_detail what went wrong in our own words.
-- oldest program: 0.1.0
--
-- An older worker writes either into response_excerpt; those who read know by response_status.

ALTER TABLE webhook_delivery_jobs ADD COLUMN failure_detail varchar(1000);
