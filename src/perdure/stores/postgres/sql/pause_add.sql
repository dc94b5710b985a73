INSERT INTO perdure_pauses (scope, name, reason, paused_by, paused_at)
VALUES (%(scope)s, %(name)s, %(reason)s, %(by_whom)s, %(now)s)
ON CONFLICT (scope, name) DO NOTHING
