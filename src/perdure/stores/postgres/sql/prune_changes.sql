-- What every snapshot since the oldest mark shows; and what says to be of the future, which came with a dump of another
-- server: what we see was committed before. What another hand holds at this moment is left for the next time.
DELETE FROM perdure_changes WHERE no = ANY (ARRAY(
    SELECT c.no FROM perdure_changes AS c
    WHERE c.xid < (SELECT min(pg_snapshot_xmin(place)) FROM perdure_change_marks)
    OR c.xid >= pg_snapshot_xmax(pg_current_snapshot())
    ORDER BY c.xid LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
))
