-- Add up what each backend has counted. What struck nobody for a month is forgotten; of what is counted for all owners the
-- sum stays, without the fingerprint. Rows in use meanwhile stay.
WITH gone AS (
    DELETE FROM perdure_deaths WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_deaths
        WHERE writer <> 0 OR (letters = 0 AND fingerprint <> '' AND last_at < %(old)s::bigint)
        LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
added AS (
    INSERT INTO perdure_deaths AS t (
        owner, fingerprint, pipeline, stage, reason, kind, code, writer, letters, ever, first_at, last_at
    )
    SELECT
        owner, CASE WHEN writer <> 0 THEN fingerprint ELSE '' END, pipeline, stage, reason, kind, code, 0, sum(letters),
        sum(ever), min(first_at), max(last_at)
    FROM gone WHERE writer <> 0 OR owner = '' GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7
    ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
        letters = t.letters + excluded.letters, ever = t.ever + excluded.ever,
        first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at)
)
SELECT count(*) FROM gone
