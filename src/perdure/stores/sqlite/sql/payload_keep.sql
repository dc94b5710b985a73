-- Before another one takes its place.
INSERT INTO perdure_payloads (job, life, payload) SELECT no, life, payload FROM perdure_jobs WHERE no = ?
