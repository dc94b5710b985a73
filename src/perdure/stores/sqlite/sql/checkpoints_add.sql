INSERT INTO perdure_checkpoints (job, stage, token, saved_at, value)
SELECT value ->> 'no', value ->> 'checkpoint_stage', value ->> 'token', :now, value ->> 'checkpoint'
FROM json_each(:records)
WHERE value ->> 'checkpoint_stage' IS NOT NULL
