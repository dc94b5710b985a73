-- What happened to a sample, try by try?
SELECT h.sample_id, h.stage_name, h.attempt, h.status, h.error_message, h.stage_config_hash, h.applied_at
FROM perdure_dataset_stages_applied AS h JOIN perdure_dataset_samples AS s ON s.id = h.sample_id
WHERE s.job = :sample
ORDER BY h.applied_at, h.life, h.attempt
