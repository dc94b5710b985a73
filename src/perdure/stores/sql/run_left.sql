-- Another one that feeds as well says so with its next sign.
UPDATE perdure_runs SET feeding_at = NULL, fed_at = :now
WHERE no = :no AND fed_by = :by AND feeding_at IS NOT NULL
