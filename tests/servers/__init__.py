"""Real servers for tests and benchmarks: PostgreSQL in several versions, PgBouncer in front of it."""
