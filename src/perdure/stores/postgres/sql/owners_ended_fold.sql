-- Take the jobs that have succeeded off what their owners have open, in rows of this backend's own: workers do that between
-- turns, and wait for nobody. Batches that are being written meanwhile stay.
WITH gone AS (
    DELETE FROM perdure_owners_ended WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_owners_ended LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING owners
),
taken_off AS (
    INSERT INTO perdure_owners AS t (owner, writer, open)
    SELECT o.owner, -pg_backend_pid(), -count(*) FROM gone, unnest(gone.owners) AS o (owner)
    GROUP BY o.owner ORDER BY o.owner
    ON CONFLICT (owner, writer) DO UPDATE SET open = t.open + excluded.open
)
SELECT count(*) FROM gone
