-- Outbox: one INSERT in an application's own transaction, as outbox_writer, and nothing else.

-- name: insert_event :none
-- A key that is there already leaves that row as it is (id = id changes nothing, and needs no right
-- to update). The number of buckets is fixed when the schema is made.
INSERT INTO events (event_type, payload, tenant, external_id, bucket)
VALUES (:event_type, :payload, :tenant, :external_id, surehook_bucket(:hash));
