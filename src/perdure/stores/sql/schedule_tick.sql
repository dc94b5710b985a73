-- One moment is ticked once: whoever comes second waits, and then finds the next moment.
UPDATE perdure_schedules SET next_at = :next_at, ticked_at = :now, ticks = ticks + 1
WHERE name = :name AND next_at = :due_at
