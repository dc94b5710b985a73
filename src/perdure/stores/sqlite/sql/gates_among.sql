SELECT name, parent, state, generation, held_until, reason, changed_by, changed_at, control
FROM perdure_gates WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name
