"""The tour that ``perdure demo`` gives: a misbehaving upstream, and work that outlives it."""
