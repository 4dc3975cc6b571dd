-- The figures of the whole system, as they were last counted: every process shows the same.
-- oldest program: 0.1.0

CREATE TABLE IF NOT EXISTS system_figures (
    name       VARCHAR(32) NOT NULL PRIMARY KEY,
    begun_at   DATETIME(6) NOT NULL, -- when a process last began to count
    counted_at DATETIME(6), -- when one last finished
    figures    TEXT -- what it found, as JSON
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;
