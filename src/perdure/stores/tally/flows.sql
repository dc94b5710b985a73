-- What has happened; by minute, from one on, or in all (minute 0). What was pruned has happened all the same.
SELECT pipeline, stage, CASE WHEN minute >= :since THEN minute ELSE 0 END AS at,
    sum(created), sum(succeeded), sum(failed), sum(cancelled), sum(revived), sum(attempts), sum(retries), sum(waits),
    sum(tokens_in), sum(tokens_out), sum(cost_nusd)
FROM perdure_flows WHERE minute >= :least
GROUP BY 1, 2, 3
