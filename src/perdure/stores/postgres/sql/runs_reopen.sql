UPDATE perdure_runs SET status = 'running', ended_at = NULL, why = '', changed_at = %(now)s::bigint
WHERE no = ANY (%(nos)s::bigint[]) AND status IN ('completed', 'partial_success', 'failed')
RETURNING no, id::text, owner, pipeline, status
