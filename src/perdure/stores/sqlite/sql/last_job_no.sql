SELECT seq FROM sqlite_sequence WHERE name = 'perdure_jobs'
