-- The runs of jobs that are about to live again, locked in the order of their numbers.
SELECT no, status FROM perdure_runs WHERE no = ANY (%(nos)s::bigint[]) ORDER BY no FOR UPDATE
