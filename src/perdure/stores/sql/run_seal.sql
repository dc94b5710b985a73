-- All items are in, so that it does not matter any more who feeds.
UPDATE perdure_runs SET sealed_at = coalesce(sealed_at, :now), feeding_at = NULL WHERE no = :no
