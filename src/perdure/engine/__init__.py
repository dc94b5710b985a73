"""The verbs. Each is a small step; threads and loops only call steps."""
