-- Lines from a place on, until there are as many entries as asked for and one line more.
SELECT no, changed_at, what, entries FROM (
    SELECT no, changed_at, what, entries, sum(size) OVER (ORDER BY no) - size AS before
    FROM (
        SELECT * FROM perdure_changes
        WHERE no >= :line AND no < :end ORDER BY no LIMIT :limit + 2
    )
)
WHERE before <= :limit + :done ORDER BY no
