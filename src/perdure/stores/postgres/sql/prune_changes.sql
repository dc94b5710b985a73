-- What every snapshot since the oldest mark shows; and what says to be of the future, which came with a dump of another
-- server: what we see was committed before. Two looks, one at each end of the index: with OR it would be walked whole.
-- What another hand holds at this moment is left for the next time.
DELETE FROM perdure_changes WHERE no = ANY (ARRAY(
    SELECT no FROM (
        SELECT no FROM perdure_changes
        WHERE xid < (SELECT min(pg_snapshot_xmin(place)) FROM perdure_change_marks)
        ORDER BY xid LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) AS old
    UNION ALL
    SELECT no FROM (
        SELECT no FROM perdure_changes
        WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
        ORDER BY xid LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) AS strange
    LIMIT %(limit)s
))
