-- Add up what each backend has counted; an owner without open jobs has no row. Rows in use meanwhile stay.
WITH gone AS (
    DELETE FROM perdure_owners WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_owners WHERE writer <> 0 OR open = 0 LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
added AS (
    INSERT INTO perdure_owners AS t (owner, writer, open)
    SELECT owner, 0, sum(open) FROM gone GROUP BY owner HAVING sum(open) <> 0 ORDER BY owner
    ON CONFLICT (owner, writer) DO UPDATE SET open = t.open + excluded.open
)
SELECT count(*) FROM gone
