"""The five numbers that the document wants watched: of the files that ended in the last 30 days, and one of the store's tallies."""

from examples.reports.app import app, reports

from examples.reports import files

ENDED = """
SELECT avg(extract(epoch FROM processed_at - queued_at)) FILTER (WHERE status = 'succeeded') AS mean_s,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) FILTER (WHERE error_code = 'schema_validation_failed') AS misfits,
    count(*) FILTER (WHERE raw_output IS NOT NULL) AS captured,
    count(*) AS ended
FROM files
WHERE processed_at > now() - interval '30 days'
"""


def numbers() -> dict[str, float | None]:
    """Shares are of the files that have ended; the rate of retries is of all attempts since the store was made."""
    flows = [one for one in app.stats().flows if one.pipeline == reports.name]
    with files.database() as connection:
        row = connection.execute(ENDED).fetchone()
    mean_s, ended = row["mean_s"], row["ended"]
    return {
        "retry_rate": share(sum(one.retries for one in flows), sum(one.attempts for one in flows)),
        "final_failure_rate": share(row["failed"], ended),
        "mean_time_to_succeeded_s": None if mean_s is None else round(float(mean_s), 3),
        "schema_failure_share": share(row["misfits"], ended),
        "raw_output_capture_share": share(row["captured"], ended),
    }


def share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
