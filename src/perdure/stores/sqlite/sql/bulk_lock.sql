-- What a step does counts only if the operation still stands where it was seen; nobody else writes meanwhile.
SELECT no FROM perdure_bulks WHERE no = :no AND status = 'running' AND cursor IS :seen_cursor
