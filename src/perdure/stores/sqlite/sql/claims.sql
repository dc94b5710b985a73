-- Claims whole, by number.
SELECT {j.claim_columns}, {j.claim_input} FROM perdure_jobs AS j
WHERE j.no IN (SELECT value FROM json_each(:nos)) AND j.state = 'processing'
ORDER BY j.rank_at, j.no
