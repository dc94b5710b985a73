-- One of that name and rule keeps its next moment.
INSERT INTO perdure_schedules (name, pipeline, spec, payload, next_at)
VALUES (:name, :pipeline, :spec, :payload, :next_at)
ON CONFLICT (name) DO UPDATE SET
    pipeline = excluded.pipeline, payload = excluded.payload, spec = excluded.spec,
    next_at = CASE WHEN perdure_schedules.spec = excluded.spec
        THEN perdure_schedules.next_at ELSE excluded.next_at END
