SELECT j.id, 'waits for stage ' || j.stage || ' without the result of stage ' || j.input_from
FROM perdure_jobs AS j LEFT JOIN perdure_checkpoints AS c
    ON c.job = j.no AND c.stage = j.input_from
WHERE j.input_from IS NOT NULL AND c.job IS NULL
