-- Compare and set. One that goes on is measured from now on.
UPDATE perdure_bulks SET
    status = :status, why = :why, changed_at = :now,
    resumed_at = CASE WHEN :status = 'running' THEN :now ELSE resumed_at END,
    resumed_done = CASE WHEN :status = 'running' THEN done ELSE resumed_done END
WHERE no = :no AND status = :seen
