UPDATE perdure_books SET pruned = pruned + :pruned WHERE pipeline = :pipeline
