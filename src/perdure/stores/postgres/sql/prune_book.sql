INSERT INTO perdure_books (pipeline, pruned) VALUES (%(pipeline)s, %(pruned)s)
