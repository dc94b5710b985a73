INSERT INTO perdure_bulks (id, verb, status, filter, begun_by, reason, begun_at, changed_at)
VALUES (:id, :verb, 'running', :filter, :by_whom, :reason, :now, :now)
ON CONFLICT (id) DO NOTHING
