-- Waits until no turn of this worker is under way: each holds its row until it has committed.
SELECT no FROM perdure_workers WHERE no = %(worker)s FOR UPDATE
