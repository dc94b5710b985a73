-- The first mark of all stands before the first line: before it nothing was let go.
INSERT INTO perdure_change_marks (marked_at, place)
SELECT :now, CASE WHEN EXISTS (SELECT 1 FROM perdure_change_marks)
    THEN coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'perdure_changes'), 0) ELSE 0 END
WHERE NOT EXISTS (SELECT 1 FROM perdure_change_marks WHERE marked_at > :now - :every_us)
