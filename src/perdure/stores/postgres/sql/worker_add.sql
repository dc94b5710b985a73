WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
INSERT INTO perdure_workers (boot, name, role, ttl_us, started_at, beat_at, steady_at)
SELECT %(boot)s, %(name)s, %(role)s, %(ttl_us)s, now, now, now FROM clock
ON CONFLICT (boot) DO UPDATE SET boot = excluded.boot  -- sent again: it is this one
RETURNING no, xmax = 0  -- made just now
