INSERT INTO perdure_run_kinds (run, writer, kind, failed) VALUES (?, ?, ?, ?)
ON CONFLICT (run, writer, kind) DO UPDATE SET failed = failed + excluded.failed
