INSERT INTO perdure_changes (changed_at, what, size, entries)
VALUES (%(now)s, %(what)s, %(size)s, %(entries)s::json)
