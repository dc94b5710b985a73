-- Add up what each backend has counted. What struck nobody for a month is forgotten; of what is counted for all owners the
-- sum stays, without the fingerprint. Rows in use meanwhile stay, and then nothing of theirs is forgotten: what is still to be
-- added may be letters, whose first time this is.
WITH gone AS (
    DELETE FROM perdure_deaths WHERE ctid = ANY (ARRAY(
        SELECT d.ctid FROM perdure_deaths AS d
        WHERE d.writer <> 0 OR (d.letters = 0 AND d.fingerprint <> '' AND d.last_at < %(old)s::bigint AND NOT EXISTS (
            SELECT 1 FROM perdure_deaths AS w
            WHERE w.owner = d.owner AND w.fingerprint = d.fingerprint AND w.pipeline = d.pipeline AND w.stage = d.stage
            AND w.reason = d.reason AND w.kind = d.kind AND w.code = d.code AND w.writer <> 0
        ))
        LIMIT 10000 FOR UPDATE OF d SKIP LOCKED
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
