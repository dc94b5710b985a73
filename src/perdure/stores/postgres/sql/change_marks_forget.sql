-- All before the last one that is old enough: from that one on, the feed is whole. Two that are made at once may have
-- their numbers in another order than their snapshots; so it goes by these. A mark of the future came with a dump of
-- another server.
DELETE FROM perdure_change_marks
WHERE (pg_snapshot_xmin(place), pg_snapshot_xmax(place)) < (
    SELECT pg_snapshot_xmin(place), pg_snapshot_xmax(place) FROM perdure_change_marks
    WHERE marked_at <= %(now)s::bigint - %(kept_us)s::bigint
    ORDER BY 1 DESC, 2 DESC LIMIT 1
)
OR pg_snapshot_xmax(place) > pg_snapshot_xmax(pg_current_snapshot())
