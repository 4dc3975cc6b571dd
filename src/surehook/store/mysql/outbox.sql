-- Outbox: one INSERT in an application's own transaction, as outbox_writer, and nothing else.
-- Only on PostgreSQL: insert_event_into

-- name: insert_event :none
-- The texts come as hexadecimal digits: whatever the character set and the SQL mode of someone
-- else's connection, the bytes arrive. A key that is taken is an error of this statement alone
-- (1062), which the caller forgives. The bucket comes of the key's hash.
INSERT INTO events (event_type, payload, tenant, external_id, bucket)
VALUES (
    :event_type, CONVERT(UNHEX(:payload) USING utf8mb4), CONVERT(UNHEX(:tenant) USING utf8mb4),
    CONVERT(UNHEX(:external_id) USING utf8mb4), surehook_bucket(:hash)
);
