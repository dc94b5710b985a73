-- Compare and set: none, when the generation has moved on. Whoever comes second waits for the row, and
-- then finds another generation in it.
UPDATE perdure_gates SET
    parent = %(parent)s, state = %(state)s, generation = generation + 1,
    held_until = %(held_until)s, reason = %(reason)s, changed_by = %(by_whom)s,
    changed_at = %(now)s, control = %(control)s
WHERE name = %(name)s AND generation = %(generation)s
RETURNING name, parent, state, generation, held_until, reason, changed_by, changed_at, control
