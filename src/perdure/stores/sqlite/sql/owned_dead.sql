-- A dead letter has a new life, or was discarded; one that has no owner is not found.
UPDATE perdure_owned SET ended = :ended, changed_at = :now
WHERE owner = (SELECT owner FROM perdure_jobs WHERE no = :no) AND ended = 2 AND job = :no
