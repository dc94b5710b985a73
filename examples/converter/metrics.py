"""The metrics of the design document, read from the store: one answer tells of all processes.

Counts of jobs fall when Perdure prunes what is older than a month; everything else here only rises.
"""

from typing import Any

import psycopg

FIGURES = """
SELECT count(*) AS created,
    count(*) FILTER (WHERE status = 'complete') AS completed,
    count(*) FILTER (WHERE status = 'queued') AS queued,
    count(*) FILTER (WHERE status = 'processing') AS processing
FROM perdure_converter_jobs WHERE pipeline = 'conversions'
"""
FAILED = """
SELECT "errorCode" AS code, count(*) AS jobs FROM perdure_converter_jobs
WHERE pipeline = 'conversions' AND status = 'failed' GROUP BY 1 ORDER BY 1
"""
ATTEMPTS = """
SELECT count(*) FILTER (WHERE status = 'retrying') AS retries,
    percentile_disc(0.95) WITHIN GROUP (ORDER BY elapsed_s) FILTER (WHERE status = 'success') AS p95_s
FROM perdure_attempts WHERE stage = 'convert'
"""
# Every change of a gate is a line of the audit log; between one that holds it and the next it is held.
HELD = """
SELECT coalesce(sum(until_us - done_at) FILTER (WHERE verb NOT IN ('flow gate', 'release gate', 'resume gate', 'declare gate')), 0)
    / 1e6 AS held_s
FROM (
    SELECT verb, done_at,
        lead(done_at, 1, (extract(epoch FROM now()) * 1e6)::bigint) OVER (ORDER BY no) AS until_us
    FROM perdure_audit_log WHERE subject = 'gateway'
) AS changes
"""


def metrics_of(cx: psycopg.Connection[dict[str, Any]]) -> str:
    """All of them, in the text format of Prometheus."""
    jobs, attempts = cx.execute(FIGURES).fetchone(), cx.execute(ATTEMPTS).fetchone()
    held = cx.execute(HELD).fetchone()
    assert jobs is not None
    assert attempts is not None
    assert held is not None
    lines = [
        f"converter_jobs_created_total {jobs['created']}",
        f"converter_jobs_completed_total {jobs['completed']}",
        *(
            f'converter_jobs_failed_total{{code="{row["code"]}"}} {row["jobs"]}'
            for row in cx.execute(FAILED)
        ),
        f"converter_queue_depth {jobs['queued']}",
        f"converter_jobs_processing {jobs['processing']}",
        f"converter_gateway_latency_p95_seconds {attempts['p95_s'] or 0:.6f}",
        f"converter_retries_scheduled_total {attempts['retries']}",
        f"converter_breaker_open_seconds_total {held['held_s']:.6f}",
    ]
    return "\n".join([*lines, ""])
