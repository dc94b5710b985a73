-- What waits in each lane is counted up to a bound, by the lane's place in the partial indexes.
SELECT
    l.no, l.queue, l.category, l.pipeline, l.stage, l.run, l.upstream,
    (SELECT count(*) FROM (
        SELECT 1 FROM perdure_jobs AS j WHERE j.lane = l.no AND j.ready = 1 LIMIT %(count_max)s
    ) AS counted),
    (SELECT count(*) FROM (
        SELECT 1 FROM perdure_jobs AS j WHERE j.lane = l.no AND j.ready = 0 LIMIT %(count_max)s
    ) AS counted)
FROM perdure_lanes AS l ORDER BY l.no
