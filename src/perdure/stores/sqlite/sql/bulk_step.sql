-- Compare and set: none, when it is elsewhere already, or over.
UPDATE perdure_bulks SET
    cursor = :cursor, status = :status, phase = :phase, why = :why, changed_at = :now
WHERE no = :no AND status = 'running' AND cursor IS :seen_cursor
