-- How many jobs of an owner are queued or in work.
SELECT coalesce(sum(open), 0) FROM perdure_open_jobs WHERE owner = :owner
