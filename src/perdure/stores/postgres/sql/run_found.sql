-- A statement of its own after `run_add.sql`: one that began before the winner committed would not see it.
SELECT id::text FROM perdure_runs
WHERE owner = %(owner)s AND pipeline = %(pipeline)s AND name = %(name)s
