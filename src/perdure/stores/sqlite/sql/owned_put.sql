-- A job has changed otherwise than by the end of an attempt, or has failed; one that has no owner is left out.
INSERT INTO perdure_owned (owner, job, failed, changed_at)
SELECT owner, no, failed_reason IS NOT NULL, ?2 FROM perdure_jobs WHERE no = ?1 AND owner <> ''
ON CONFLICT (owner, job) DO UPDATE SET failed = excluded.failed, changed_at = excluded.changed_at
