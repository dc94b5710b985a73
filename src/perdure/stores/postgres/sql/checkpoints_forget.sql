DELETE FROM perdure_checkpoints AS c USING jsonb_to_recordset(%(forgotten)s::jsonb) AS f (no bigint, stage text)
WHERE c.job = f.no AND c.stage = f.stage
