-- What a step does counts only if the operation still stands where it was seen, and stays there meanwhile.
SELECT no FROM perdure_bulks
WHERE no = %(no)s AND status = 'running' AND cursor IS NOT DISTINCT FROM %(seen_cursor)s::bigint
FOR UPDATE
