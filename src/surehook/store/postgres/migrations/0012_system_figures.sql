-- The figures of the whole system, as they were last counted: every process shows the same.
-- oldest program: 0.1.0

-- A note, not history, and unlogged like the processes: what a crash of the server takes away is
-- counted again when somebody next looks.
CREATE UNLOGGED TABLE system_figures (
    name       varchar(32) NOT NULL PRIMARY KEY,
    begun_at   timestamptz NOT NULL, -- when a process last began to count
    counted_at timestamptz, -- when one last finished
    figures    text -- what it found, as JSON
) WITH (fillfactor = 50);
