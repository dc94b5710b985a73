INSERT INTO perdure_runs
    (id, owner, pipeline, name, status, parent, settings, created_at, changed_at)
VALUES (:id, :owner, :pipeline, :name, 'running', :parent, :settings, :now, :now)
ON CONFLICT (owner, pipeline, name) DO NOTHING
