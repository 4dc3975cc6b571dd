-- Who runs: a row per process and component, kept by the process itself.
-- oldest program: 0.1.0

CREATE TABLE IF NOT EXISTS processes (
    process_id   VARCHAR(32)  NOT NULL, -- random, made at its start
    component    VARCHAR(32)  NOT NULL,
    host         VARCHAR(255) NOT NULL,
    pid          INTEGER      NOT NULL,
    version      VARCHAR(64)  NOT NULL,
    address      VARCHAR(255), -- where it serves /healthz, /readyz and /metrics
    since        DATETIME(6)  NOT NULL,
    heartbeat_at DATETIME(6)  NOT NULL,
    step_at      DATETIME(6)  NOT NULL, -- when the component last began a step
    trouble      VARCHAR(255), -- why it does not work as it should
    PRIMARY KEY (process_id, component)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;
