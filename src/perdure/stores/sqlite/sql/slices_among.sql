SELECT gate, generation, slices FROM perdure_gate_slices
WHERE gate IN (SELECT value FROM json_each(:names)) ORDER BY gate
