"""A scrape as a test reads it: what each series says, and that no counter has fallen since the last one."""

import re
import urllib.request
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

SAMPLE_OF_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")


class Scraped:
    """The values of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.rising: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        self.families: set[str] = set()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series = (sample.name, frozenset(sample.labels.items()))
                assert series not in self.values, f"twice: {series}"
                self.values[series] = sample.value
                self.families.add(family.name)
                if family.type in ("counter", "histogram"):
                    self.rising.add(series)

    def __call__(self, name: str, **labels: str) -> float:
        """What one series says; 0 where it is not there."""
        return self.values.get((name, frozenset(labels.items())), 0.0)

    def total(self, name: str, **labels: str) -> float:
        """The sum over the series that have these labels."""
        wanted = set(labels.items())
        return sum(
            value for (one, has), value in self.values.items() if one == name and wanted <= has
        )

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(has) for one, has in self.values if one == name]

    def fallen_since(self, before: "Scraped") -> list[str]:
        """Counters that are lower than they were, or gone."""
        return [
            f"{series}: {was} then {self.values.get(series)}"
            for series, was in before.values.items()
            if series in before.rising and self.values.get(series, -1.0) < was
        ]


def scrape(address: str, *, within_s: float = 60.0) -> Scraped:
    with urllib.request.urlopen(address, timeout=within_s) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return Scraped(answer.read().decode())


def names_in(rules: str) -> set[str]:
    """Metrics that a text of rules or PromQL names; not what it records itself."""
    found = re.findall(r"(?<![:\w])perdure_[a-z0-9_]+(?![:\w])", rules)
    return {SAMPLE_OF_HISTOGRAM.sub("", one) for one in found}


def shares(scraped: Scraped, pipelines: Iterable[str]) -> Mapping[str, float]:
    """The five numbers of R102, as the recorded rules have them, but since the beginning."""
    found = dict.fromkeys(("attempts", "retries", "ended", "failed", "invalid", "captured"), 0.0)
    for one in pipelines:
        found["attempts"] += scraped.total("perdure_attempts_total", pipeline=one)
        found["retries"] += scraped.total("perdure_retries_total", pipeline=one)
        failed = scraped.total("perdure_jobs_ended_total", pipeline=one, state="failed")
        good = scraped.total("perdure_jobs_ended_total", pipeline=one, state="succeeded")
        found["failed"] += failed
        found["ended"] += failed + good
        for kind in ("invalid_output", "truncated_output"):
            found["invalid"] += scraped.total(
                "perdure_attempt_failures_total", pipeline=one, kind=kind
            )
        found["captured"] += scraped.total("perdure_attempts_captured_total", pipeline=one)
    total_s = sum(scraped("perdure_time_to_success_seconds_sum", pipeline=one) for one in pipelines)
    count = sum(scraped("perdure_time_to_success_seconds_count", pipeline=one) for one in pipelines)
    return {
        "retry rate": found["retries"] / found["attempts"],
        "final failure rate": found["failed"] / found["ended"],
        "mean time to success": total_s / count,
        "share of schema failures": found["invalid"] / found["attempts"],
        "share of captures": found["captured"] / found["attempts"],
    }
