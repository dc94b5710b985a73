-- Claim the least-tried of the first jobs of these lanes, merged by rank as in `claim.sql`.
WITH firsts AS MATERIALIZED (
    SELECT l.lane, h.rank_at, h.no
    FROM unnest(%(lanes)s::bigint[]) AS l (lane)
    CROSS JOIN LATERAL (
        SELECT j.rank_at, j.no FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 1
        ORDER BY j.rank_at, j.no LIMIT 1
    ) AS h
    ORDER BY h.rank_at, h.no LIMIT %(look)s
),
last AS MATERIALIZED (
    SELECT
        coalesce(f.rank_at, 9223372036854775807) AS rank_at, coalesce(f.no, 9223372036854775807) AS no
    FROM (VALUES (1)) AS always (one)
    LEFT JOIN (SELECT rank_at, no FROM firsts ORDER BY rank_at, no OFFSET %(look)s - 1) AS f ON true
),
heads AS MATERIALIZED (
    SELECT h.no, h.rank_at, h.starts
    FROM last AS l
    CROSS JOIN firsts AS f
    CROSS JOIN LATERAL (
        SELECT j.no, j.rank_at, j.starts FROM perdure_jobs AS j
        WHERE j.lane = f.lane AND j.isolation = %(isolation)s AND j.ready = 1
        AND (j.rank_at, j.no) <= (l.rank_at, l.no)
        ORDER BY j.rank_at, j.no LIMIT %(look)s
    ) AS h
    ORDER BY h.rank_at, h.no LIMIT %(look)s
),
picked AS MATERIALIZED (
    SELECT s.no, s.lane
    FROM (SELECT no FROM heads ORDER BY starts, rank_at, no) AS h
    CROSS JOIN LATERAL (
        SELECT j.no, j.lane FROM perdure_jobs AS j
        WHERE j.no = h.no AND coalesce(j.ready, 0) = 1  -- by number, not by the index of ready ones
        AND j.due_at <= %(now)s::bigint LIMIT 1  -- not one that was tried, and fell due again, since that moment
        FOR UPDATE SKIP LOCKED
    ) AS s
    LIMIT 1
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, ready, processing)
    SELECT lane, -pg_backend_pid(), -count(*), count(*) FROM picked GROUP BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, processing = t.processing + excluded.processing
)
UPDATE perdure_jobs AS j SET
    state = 'processing', ready = NULL, worker = %(worker)s::bigint, token = j.token + 1,
    starts = j.starts + 1, claimed_at = %(now)s::bigint, updated_at = %(now)s::bigint
WHERE j.no = ANY (ARRAY(SELECT no FROM picked))
RETURNING j.no, j.token
