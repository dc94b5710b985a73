-- How many jobs of an owner are queued or in work.
SELECT coalesce(sum(open), 0) FROM perdure_owners WHERE owner = :owner
