-- Lock these jobs in the order of numbers, and wait for none; the numbers of those that others hold come back.
WITH held AS MATERIALIZED (
    SELECT j.no FROM perdure_jobs AS j WHERE j.no = ANY (%(nos)s::bigint[])
    ORDER BY j.no
    FOR UPDATE SKIP LOCKED
)
SELECT j.no FROM perdure_jobs AS j
WHERE j.no = ANY (%(nos)s::bigint[]) AND j.no <> ALL (ARRAY(SELECT h.no FROM held AS h))
