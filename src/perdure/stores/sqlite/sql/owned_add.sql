INSERT INTO perdure_owned (owner, ended, job, changed_at) VALUES (?1, 0, ?2, ?3)
