"""The five numbers that the document wants watched: from the store's tallies, and from the files that ended in the last 30 days."""

from examples.reports.app import app, reports

from examples.reports import files

TIMES = """
SELECT avg(extract(epoch FROM processed_at - queued_at)) FILTER (WHERE status = 'succeeded') AS mean_s,
    count(*) FILTER (WHERE raw_output IS NOT NULL) AS captured,
    count(*) AS ended
FROM files
WHERE processed_at > now() - interval '30 days'
"""


def numbers() -> dict[str, float | None]:
    """Shares are of what has ended; the rate of retries is of all attempts."""
    stats = app.stats()
    flows = [one for one in stats.flows if one.pipeline == reports.name]
    failed = sum(one.failed for one in flows)
    ended = failed + sum(one.succeeded + one.cancelled for one in flows)
    deaths = [one for one in stats.deaths if one.pipeline == reports.name]
    misfits = sum(one.ever for one in deaths if one.code == "schema_validation_failed")
    with files.database() as connection:
        row = connection.execute(TIMES).fetchone()
    return {
        "retry_rate": share(sum(one.retries for one in flows), sum(one.attempts for one in flows)),
        "final_failure_rate": share(failed, ended),
        "mean_time_to_succeeded_s": None
        if row["mean_s"] is None
        else round(float(row["mean_s"]), 3),
        "schema_failure_share": share(misfits, ended),
        "raw_output_capture_share": share(row["captured"], row["ended"]),
    }


def share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
