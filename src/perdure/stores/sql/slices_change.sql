-- Compare and set: none, when the generation has moved on.
UPDATE perdure_gate_slices SET generation = generation + 1, slices = :slices
WHERE gate = :gate AND generation = :generation
