UPDATE perdure_bulks SET
    cursor = :cursor, done = done + :done, refused = refused + :refused, status = :status,
    changed_at = :now
WHERE no = :no AND status = 'running' AND cursor IS :seen_cursor
RETURNING
    no, id, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at
