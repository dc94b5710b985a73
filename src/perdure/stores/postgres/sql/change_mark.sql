-- The first mark of this server stands before every line: before it nothing was let go. Those that came with a dump of
-- another server say nothing about this one.
INSERT INTO perdure_change_marks (marked_at, place)
SELECT %(now)s::bigint, CASE WHEN EXISTS (
        SELECT 1 FROM perdure_change_marks
        WHERE pg_snapshot_xmax(place) <= pg_snapshot_xmax(pg_current_snapshot())
    )
    THEN pg_current_snapshot() ELSE '1:1:'::pg_snapshot END
WHERE NOT EXISTS (
    SELECT 1 FROM perdure_change_marks WHERE marked_at > %(now)s::bigint - %(every_us)s::bigint
)
