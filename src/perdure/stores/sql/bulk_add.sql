INSERT INTO perdure_bulks (
    id, verb, status, filter, begun_by, reason, begun_at, changed_at, settings, run, phase, owner
)
VALUES (
    :id, :verb, 'running', :filter, :by_whom, :reason, :now, :now, :settings, :run, :phase, :owner
)
ON CONFLICT (id) DO NOTHING
