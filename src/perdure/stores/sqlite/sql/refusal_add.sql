-- Nothing is refused twice.
INSERT INTO perdure_bulk_refusals (bulk, job, why) VALUES (:bulk, :job, :why)
ON CONFLICT (bulk, job) DO NOTHING
