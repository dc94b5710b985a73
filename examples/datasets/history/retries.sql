-- How many samples of a run needed 0, 1, 2 … retries?
SELECT retries, items AS samples
FROM perdure_run_retries
WHERE run = :run
ORDER BY retries
