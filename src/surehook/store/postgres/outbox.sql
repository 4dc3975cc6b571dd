-- Outbox: one INSERT in an application's own transaction, as outbox_writer, and nothing else.

-- name: insert_event_into :none
-- For a schema that the caller names.
-- No RETURNING and no named conflict target: both would need the right to read. The casts keep
-- every driver from guessing a type (or running its own JSON encoder). The bucket comes of the
-- key's hash.
INSERT INTO events (event_type, payload, tenant, external_id, bucket)
VALUES (
    CAST(:event_type AS varchar), CAST(CAST(:payload AS text) AS json), CAST(:tenant AS varchar),
    CAST(:external_id AS varchar), surehook_bucket(CAST(:hash AS bigint))
)
ON CONFLICT DO NOTHING;

-- name: insert_event :none
-- The same where the search path leads. It must lead to the one installation of this database:
-- beside a second one, the event could be stored where no router looks. The catalogue says so
-- to everyone; a text that is not a number carries the reason to the caller.
INSERT INTO events (event_type, payload, tenant, external_id, bucket)
VALUES (
    CAST(:event_type AS varchar), CAST(CAST(:payload AS text) AS json), CAST(:tenant AS varchar),
    CAST(:external_id AS varchar),
    CASE
        WHEN (SELECT array_agg(relnamespace) FROM pg_catalog.pg_class
              WHERE relname = 'webhook_delivery_sagas' AND relkind IN ('r', 'p'))
            = (SELECT array_agg(relnamespace) FROM pg_catalog.pg_class
               WHERE oid = CAST('events' AS pg_catalog.regclass))
        THEN surehook_bucket(CAST(:hash AS bigint))
        ELSE CAST(concat('surehook: the tables are in ',
            (SELECT string_agg(relnamespace::pg_catalog.regnamespace::text, ' and ')
             FROM pg_catalog.pg_class
             WHERE relname = 'webhook_delivery_sagas' AND relkind IN ('r', 'p')),
            ', say which by publish(schema=...)') AS smallint)
    END
)
ON CONFLICT DO NOTHING;
