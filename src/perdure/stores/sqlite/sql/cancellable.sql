-- Whether a job can be cancelled: it is as it was seen, has not ended, and is the owner's, if one is given.
SELECT 1 FROM perdure_jobs
WHERE no = :no AND token = :token AND finished_at IS NULL AND (:owner IS NULL OR owner = :owner)
