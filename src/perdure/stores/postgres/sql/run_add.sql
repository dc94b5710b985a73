INSERT INTO perdure_runs
    (id, owner, pipeline, name, status, parent, settings, created_at, changed_at)
VALUES (
    %(id)s, %(owner)s, %(pipeline)s, %(name)s, 'running', %(parent)s, %(settings)s, %(now)s, %(now)s
)
ON CONFLICT (owner, pipeline, name) DO NOTHING
