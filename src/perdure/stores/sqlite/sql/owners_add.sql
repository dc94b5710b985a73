INSERT INTO perdure_owners (owner, open) VALUES (?, ?)
ON CONFLICT (owner) DO UPDATE SET open = open + excluded.open
