DELETE FROM perdure_changes WHERE no IN (
    SELECT no FROM perdure_changes
    WHERE no <= (SELECT place FROM perdure_change_marks ORDER BY no LIMIT 1)
    ORDER BY no LIMIT :limit
)
