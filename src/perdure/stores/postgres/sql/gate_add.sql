-- The first row of a gate; none, when another hand was quicker: we wait for it to commit.
INSERT INTO perdure_gates
    (name, parent, state, generation, held_until, reason, changed_by, changed_at, control)
VALUES (
    %(name)s, %(parent)s, %(state)s, 1, %(held_until)s, %(reason)s, %(by_whom)s, %(now)s, %(control)s
)
ON CONFLICT (name) DO NOTHING
RETURNING name, parent, state, generation, held_until, reason, changed_by, changed_at, control
