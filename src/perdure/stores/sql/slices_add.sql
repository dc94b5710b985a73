-- The first parting of an upstream's limits; none, when another hand was quicker.
INSERT INTO perdure_gate_slices (gate, generation, slices) VALUES (:gate, 1, :slices)
ON CONFLICT (gate) DO NOTHING
