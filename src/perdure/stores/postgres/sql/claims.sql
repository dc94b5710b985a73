-- Claims whole, by number.
SELECT {j.claim_columns}, {j.claim_input} FROM perdure_jobs AS j
WHERE j.no = ANY (%(nos)s::bigint[]) AND j.state = 'processing'
ORDER BY j.rank_at, j.no
