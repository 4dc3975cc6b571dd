-- Outbox: one INSERT in an application's own transaction, as outbox_writer, and nothing else.

-- name: insert_event :none
-- No RETURNING and no named conflict target: both would need the right to read. The casts keep
-- every driver from guessing a type (or running its own JSON encoder). The bucket comes of the
-- key's hash.
INSERT INTO events (event_type, payload, tenant, external_id, bucket)
VALUES (
    CAST(:event_type AS varchar), CAST(CAST(:payload AS text) AS json), CAST(:tenant AS varchar),
    CAST(:external_id AS varchar), surehook_bucket(CAST(:hash AS bigint))
)
ON CONFLICT DO NOTHING;
