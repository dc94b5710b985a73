INSERT INTO perdure_changes (changed_at, what, size, entries) VALUES (?, ?, ?, ?)
