UPDATE perdure_runs SET sealed_at = :now WHERE no = :no AND sealed_at IS NULL
