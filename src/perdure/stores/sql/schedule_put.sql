-- One of that name and rule keeps its next moment.
INSERT INTO perdure_schedules AS s (name, pipeline, spec, payload, next_at)
VALUES (:name, :pipeline, :spec, :payload, :next_at)
ON CONFLICT (name) DO UPDATE SET
    pipeline = excluded.pipeline, payload = excluded.payload, spec = excluded.spec,
    next_at = CASE WHEN s.spec = excluded.spec THEN s.next_at ELSE excluded.next_at END
