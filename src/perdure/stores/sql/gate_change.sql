-- Compare and set: none, when the generation has moved on. Whoever comes second waits, and then
-- finds another generation in it.
UPDATE perdure_gates SET
    parent = :parent, state = :state, generation = generation + 1, held_until = :held_until,
    reason = :reason, changed_by = :by_whom, changed_at = :now, control = :control
WHERE name = :name AND generation = :generation
RETURNING {gate_columns}
