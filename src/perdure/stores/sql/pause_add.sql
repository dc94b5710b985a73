INSERT INTO perdure_pauses (scope, name, reason, paused_by, paused_at)
VALUES (:scope, :name, :reason, :by_whom, :now)
ON CONFLICT (scope, name) DO NOTHING
