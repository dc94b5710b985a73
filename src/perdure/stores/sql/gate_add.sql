-- The first row of a gate; none, when another hand was quicker: we wait for it to commit.
INSERT INTO perdure_gates
    (name, parent, state, generation, held_until, reason, changed_by, changed_at, control)
VALUES (:name, :parent, :state, 1, :held_until, :reason, :by_whom, :now, :control)
ON CONFLICT (name) DO NOTHING
RETURNING {gate_columns}
