-- The first mark of all stands before every line: before it nothing was let go.
INSERT INTO perdure_change_marks (marked_at, place)
SELECT %(now)s::bigint, CASE WHEN EXISTS (SELECT 1 FROM perdure_change_marks)
    THEN pg_current_snapshot() ELSE '1:1:'::pg_snapshot END
WHERE NOT EXISTS (
    SELECT 1 FROM perdure_change_marks WHERE marked_at > %(now)s::bigint - %(every_us)s::bigint
)
