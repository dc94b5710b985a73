UPDATE perdure_runs SET
    status = :status, changed_at = :now, ended_at = CASE WHEN :ended THEN :now END
WHERE no = :no AND status = :seen
RETURNING id
