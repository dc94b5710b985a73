-- Of these runs, the ones that had ended are running again.
UPDATE perdure_runs SET status = 'running', ended_at = NULL, why = '', changed_at = :now
WHERE no IN (SELECT value FROM json_each(:nos))
AND status IN ('completed', 'partial_success', 'failed')
RETURNING no, id, owner, pipeline, status
