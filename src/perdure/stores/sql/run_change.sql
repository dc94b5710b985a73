-- The guard, the seal and the counts have been looked at in the same transaction, which holds the run.
UPDATE perdure_runs SET
    status = :status, why = :why, changed_at = :now, ended_at = :ended_at, sealed_at = :sealed_at,
    settings = coalesce(:settings, settings)
WHERE no = :no AND status = :seen
