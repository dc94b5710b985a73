-- What was the model called for, and what did that cost, by the number of the call about its sample? Of a call that nobody heard an
-- answer to, it is not known whether it was charged; nor of one that was broken off, by a shutdown or a cancelled run.
SELECT number, count(*) AS calls, sum(CASE WHEN cost_usd > 0 THEN 1 ELSE 0 END) AS charged,
    sum(CASE WHEN error_kind IN ('network', 'ambiguous', 'timeout', 'worker_lost')
        OR error_kind IS NULL AND status <> 'success' THEN 1 ELSE 0 END) AS unheard,
    sum(cost_usd) AS cost_usd, coalesce(max(cost_usd), 0) AS dearest_usd
FROM (
    SELECT row_number() OVER (PARTITION BY h.job ORDER BY h.applied_at, h.life, h.attempt) AS number, h.status, h.cost_usd, h.error_kind
    FROM perdure_dataset_stages_applied AS h JOIN perdure_run_progress AS r ON r.run_id = h.run_id
    WHERE r.run = :run AND h.stage_name = 'label'
) AS made
GROUP BY number
ORDER BY number
