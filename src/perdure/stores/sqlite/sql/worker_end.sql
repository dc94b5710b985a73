UPDATE perdure_workers SET dead_at = :now, death = :death WHERE no = :worker AND dead_at IS NULL
RETURNING no, boot
