-- Which installation this is: a part of every webhook-id, so that receivers of two installations
-- take nothing of one for a repetition of the other's.
-- oldest program: 0.1.0
--
-- Random, made once; a dump carries it along. `surehook installation renew` makes another for a
-- copy that is to run beside its original.

INSERT INTO schema_settings (name, value)
VALUES ('installation', left(replace(gen_random_uuid()::text, '-', ''), 10))
ON CONFLICT DO NOTHING;
