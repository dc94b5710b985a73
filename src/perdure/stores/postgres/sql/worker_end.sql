-- FOR UPDATE waits for a turn of this worker that is under way: after us it claims nothing more.
UPDATE perdure_workers SET
    dead_at = {now},
    death = %(death)s
WHERE no = (SELECT no FROM perdure_workers WHERE no = %(worker)s AND dead_at IS NULL FOR UPDATE)
RETURNING no, boot
