-- The life that has just begun belongs to the run that drives it again, if there is one.
INSERT INTO perdure_redrives (run, job, life)
SELECT redrive_run, no, life FROM perdure_jobs WHERE no = ?1 AND redrive_run IS NOT NULL
