-- Claim up to so many jobs from the heads of the open lanes, merged by rank. First the heads are read
-- without locks to see how many each lane is owed: the first of each lane, then as many more as can be among those
-- that are claimed; the only lane with work is owed all. Then so many are locked in each, skipping those that others
-- hold. ``floors`` are ranks below which a lane has nothing new: under an old snapshot the index is full of dead entries
-- there. The claims come back as binary rows: with so many columns that is cheaper on both ends than a JSON value.
WITH open_lanes AS MATERIALIZED (
    SELECT l.lane, l.floor
    FROM unnest(%(lanes)s::bigint[], %(floors)s::bigint[]) AS l (lane, floor)
    WHERE l.lane <> ALL (ARRAY(SELECT c.lane FROM perdure_closed_lanes AS c))
),
firsts AS MATERIALIZED (
    SELECT l.lane, h.rank_at, h.no
    FROM open_lanes AS l
    CROSS JOIN LATERAL (
        SELECT j.rank_at, j.no FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 1
        AND j.rank_at >= l.floor
        ORDER BY j.rank_at, j.no LIMIT 1
    ) AS h
    ORDER BY h.rank_at, h.no LIMIT %(slots)s
),
-- A worker that claims cannot be declared dead meanwhile. One that finds nothing locks nothing: it would have to wait
-- for the disk.
writer AS MATERIALIZED (
    SELECT no FROM perdure_workers
    WHERE no = %(worker)s::bigint AND dead_at IS NULL AND EXISTS (SELECT 1 FROM firsts)
    FOR KEY SHARE
),
last AS MATERIALIZED (
    SELECT
        coalesce(f.rank_at, 9223372036854775807) AS rank_at, coalesce(f.no, 9223372036854775807) AS no
    FROM (VALUES (1)) AS always (one)
    LEFT JOIN (SELECT rank_at, no FROM firsts ORDER BY rank_at, no OFFSET %(slots)s - 1) AS f ON true
),
owed AS MATERIALIZED (
    SELECT s.lane, s.rank_at, s.no, count(*) AS jobs
    FROM (
        SELECT f.lane, f.rank_at, f.no
        FROM last AS l
        CROSS JOIN firsts AS f
        CROSS JOIN LATERAL (
            SELECT j.rank_at, j.no FROM perdure_jobs AS j
            WHERE j.lane = f.lane AND j.isolation = %(isolation)s AND j.ready = 1
            AND (j.rank_at, j.no) >= (f.rank_at, f.no) AND (j.rank_at, j.no) <= (l.rank_at, l.no)
            ORDER BY j.rank_at, j.no LIMIT %(slots)s
        ) AS h
        ORDER BY h.rank_at, h.no LIMIT %(slots)s
    ) AS s
    WHERE (SELECT count(*) FROM firsts) > 1
    GROUP BY s.lane, s.rank_at, s.no
    UNION ALL
    SELECT f.lane, f.rank_at, f.no, %(slots)s FROM firsts AS f WHERE (SELECT count(*) FROM firsts) = 1
),
picked AS MATERIALIZED (
    SELECT h.no, o.lane
    FROM owed AS o
    CROSS JOIN LATERAL (
        SELECT j.no FROM perdure_jobs AS j
        WHERE j.lane = o.lane AND j.isolation = %(isolation)s AND j.ready = 1
        AND (j.rank_at, j.no) >= (o.rank_at, o.no)
        ORDER BY j.rank_at, j.no LIMIT o.jobs
        FOR UPDATE SKIP LOCKED
    ) AS h
    WHERE EXISTS (SELECT 1 FROM writer)
),
-- Read once the jobs are locked: another may have tried one of them since we looked, and it fell due again just now.
clock AS MATERIALIZED (
    SELECT {now} AS now FROM (SELECT count(*) FROM picked) AS locked
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, ready, processing)
    SELECT lane, -pg_backend_pid(), -count(*), count(*) FROM picked GROUP BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, processing = t.processing + excluded.processing
)
UPDATE perdure_jobs AS j SET
    state = 'processing', ready = NULL, worker = %(worker)s::bigint, token = j.token + 1,
    starts = j.starts + 1, claimed_at = clock.now, updated_at = clock.now
FROM clock
WHERE j.no = ANY (ARRAY(SELECT no FROM picked))
RETURNING {j.claim_columns}, {j.claim_input}, j.rank_at
