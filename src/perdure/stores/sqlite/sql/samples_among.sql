-- What others who live have noted lately about these gates.
SELECT s.gate, s.worker, s.samples, s.saved_at
FROM perdure_gate_samples AS s JOIN perdure_workers AS w ON w.no = s.worker
WHERE s.gate IN (SELECT value FROM json_each(:names)) AND s.worker <> :worker AND w.dead_at IS NULL
AND s.saved_at >= :since
ORDER BY s.gate, s.worker
