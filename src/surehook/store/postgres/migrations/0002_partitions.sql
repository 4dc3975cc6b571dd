-- One partition per bucket where there are several, and autovacuum that keeps up with a queue.
-- oldest program: 0.1.0

DO $$
DECLARE
    hot text;
    name text;
BEGIN
    FOREACH hot IN ARRAY ARRAY['events', 'webhook_delivery_sagas', 'webhook_delivery_jobs',
                               'dead_letters']
    LOOP
        FOR bucket IN 0 .. :buckets - 1 LOOP
            name := hot;
            IF :buckets > 1 THEN
                name := format('%s_b%s', hot, bucket);
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES IN (%s)',
                               name, hot, bucket);
            END IF;
            -- Every delivery rewrites its saga twice and its job twice: vacuum early and at full
            -- speed, or the partial indexes grow with dead entries.
            IF hot IN ('webhook_delivery_sagas', 'webhook_delivery_jobs') THEN
                EXECUTE format('ALTER TABLE %I SET (autovacuum_vacuum_scale_factor = 0.02, '
                    'autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, '
                    'autovacuum_analyze_scale_factor = 0.1)', name);
            END IF;
        END LOOP;
    END LOOP;
END
$$;
