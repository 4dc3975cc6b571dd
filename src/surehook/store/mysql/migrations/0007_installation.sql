-- Which installation this is: a part of every webhook-id, so that receivers of two installations
-- take nothing of one for a repetition of the other's.
-- oldest program: 0.1.0
--
-- Random, made once; a dump carries it along. `surehook installation renew` makes another for a
-- copy that is to run beside its original. (MariaDB 10.6 has no RANDOM_BYTES.)

INSERT INTO schema_settings (name, value)
SELECT 'installation', LEFT(SHA2(CONCAT(UUID(), RAND(), RAND(), RAND()), 256), 10) FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM schema_settings WHERE name = 'installation');
