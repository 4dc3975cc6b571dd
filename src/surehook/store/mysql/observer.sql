-- Observer: reads all but secrets, writes nothing.

-- name: unrouted :one
-- The first stage of the backlog: what the router has not read. No more than :most are counted.
SELECT 'events' AS stage, 'unrouted' AS state, COUNT(*) AS waiting,
    TIMESTAMPDIFF(MICROSECOND, MIN(created_at), UTC_TIMESTAMP(6)) / 1e6 AS oldest_seconds
FROM (
    SELECT e.created_at FROM router_cursor c
    JOIN events e ON e.bucket = c.bucket AND e.id > c.read_until_id
    LIMIT :most
) AS unrouted;

-- name: database_bytes :one
-- As the server last estimated it.
SELECT SUM(data_length + index_length) AS bytes
FROM information_schema.tables WHERE table_schema = DATABASE();
