-- A statement of its own after `run_add.sql`: one that began before the winner committed would not see it.
SELECT no FROM perdure_runs WHERE owner = :owner AND pipeline = :pipeline AND name = :name
