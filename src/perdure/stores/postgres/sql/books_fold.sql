-- Add up the journal; lines that are being written meanwhile are not seen and stay.
WITH gone AS (
    DELETE FROM perdure_books WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_books ORDER BY pipeline FOR UPDATE SKIP LOCKED LIMIT 100000
    ))
    RETURNING pipeline, accepted, pruned
)
INSERT INTO perdure_books (pipeline, accepted, pruned)
SELECT pipeline, sum(accepted), sum(pruned) FROM gone GROUP BY pipeline
