INSERT INTO perdure_owners (owner, open) VALUES (?, ?)
ON CONFLICT (owner, writer) DO UPDATE SET open = open + excluded.open
