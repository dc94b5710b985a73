-- What every snapshot since the oldest mark shows. What another hand holds at this moment is left for the next time.
DELETE FROM perdure_changes WHERE no = ANY (ARRAY(
    SELECT c.no FROM perdure_changes AS c
    WHERE c.xid < (SELECT min(pg_snapshot_xmin(place)) FROM perdure_change_marks)
    ORDER BY c.xid LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
))
