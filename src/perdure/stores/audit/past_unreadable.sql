SELECT id, 'has counters of earlier stages that cannot be read' FROM perdure_jobs
WHERE past IS NOT NULL AND past NOT LIKE '{%}'
