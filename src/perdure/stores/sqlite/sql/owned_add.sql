INSERT INTO perdure_owned (owner, job, changed_at) VALUES (?1, ?2, ?3)
