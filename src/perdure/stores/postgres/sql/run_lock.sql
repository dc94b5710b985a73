-- Whoever gives a run another status, or one of its jobs a new life, holds its row; the counts are summed by a
-- later statement, which sees what the one before has committed.
SELECT no FROM perdure_runs WHERE no = %(no)s FOR UPDATE
