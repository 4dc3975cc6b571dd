-- Who runs: a row per process and component, kept by the process itself.
-- oldest program: 0.1.0

-- Notes, not history. Unlogged, so that a heartbeat makes the server flush nothing; what a crash of
-- the server takes away, the next heartbeat writes again.
CREATE UNLOGGED TABLE processes (
    process_id   varchar(32)  NOT NULL, -- random, made at its start
    component    varchar(32)  NOT NULL,
    host         varchar(255) NOT NULL,
    pid          integer      NOT NULL,
    version      varchar(64)  NOT NULL,
    address      varchar(255), -- where it serves /healthz, /readyz and /metrics
    since        timestamptz  NOT NULL,
    heartbeat_at timestamptz  NOT NULL,
    step_at      timestamptz  NOT NULL, -- when the component last began a step
    trouble      varchar(255), -- why it does not work as it should
    PRIMARY KEY (process_id, component)
) WITH (fillfactor = 50);
