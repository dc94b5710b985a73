-- The last line that there was, and the last of those that may be gone.
SELECT
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'perdure_changes'), 0),
    coalesce((SELECT place FROM perdure_change_marks ORDER BY no LIMIT 1), 0)
