-- One moment is ticked once: whoever comes second waits for the row, and then finds the next moment in it.
UPDATE perdure_schedules SET next_at = %(next_at)s, ticked_at = %(now)s, ticks = ticks + 1
WHERE name = %(name)s AND next_at = %(due_at)s
