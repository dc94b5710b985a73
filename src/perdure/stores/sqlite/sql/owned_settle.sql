-- An attempt of an open job has ended, and perhaps the job.
UPDATE perdure_owned SET ended = ?1, changed_at = ?2 WHERE owner = ?3 AND ended = 0 AND job = ?4
