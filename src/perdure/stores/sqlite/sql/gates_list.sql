SELECT name, parent, state, generation, held_until, reason, changed_by, changed_at, control
FROM perdure_gates ORDER BY name
