SELECT min(due_at) FROM perdure_jobs WHERE lane = :lane AND isolation = :isolation AND ready = 0
