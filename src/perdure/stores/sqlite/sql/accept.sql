INSERT INTO perdure_books (pipeline, accepted) VALUES (?, ?)
ON CONFLICT (pipeline) DO UPDATE SET accepted = accepted + excluded.accepted
