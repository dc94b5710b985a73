"""Metrics: what each says and where it is read, from the table in `model/metrics.py`."""

from tools.pages.text import code, facts, table

from perdure.model.metrics import LABELS, METRICS, Metric

SOURCES = {
    "store": "the store: any one process tells it for all, so take the largest over processes",
    "process": "the process: take the sum over processes",
}
STARTS = {"counter": "never falls", "gauge": "", "histogram": "never falls"}


def metrics_page() -> list[str]:
    """Every metric, and what its labels mean."""
    lines = [
        "# Metrics",
        "",
        "What `GET /metrics` of [`perdure serve`](../howto-http.md) and the port of `perdure worker --metrics-port` give.",
        "[Metrics, and when to wake somebody](../howto-metrics.md) says how they are read, and has rules for alerts.",
        "",
        "| metric | says |",
        "|---|---|",
        *(f"| [{code(one.name)}](#{one.name}) | {_first(one.sentence)} |" for one in METRICS),
        "",
    ]
    for one in METRICS:
        lines += [f"## {one.name}", "", one.sentence, "", *facts(_facts(one))]
    rows = [(code(label), meaning) for label, meaning in LABELS.items()]
    return [*lines, "## Labels", "", *table(("label", "values"), rows)]


def _facts(one: Metric) -> dict[str, str]:
    starts = STARTS[one.type]
    return {
        "type": one.type + (f", {starts}" if starts else ""),
        "of": SOURCES[one.source],
        "labels": ", ".join(code(label) for label in one.labels) or "none",
        "buckets": " ".join(f"{bound:g}" for bound in one.buckets)
        + (" seconds" if one.buckets else ""),
    }


def _first(sentence: str) -> str:
    return sentence.split(". ", 1)[0].rstrip(".") + "."
