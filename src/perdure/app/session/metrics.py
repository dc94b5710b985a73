"""Metrics for whoever asks: of a store, and of this process or of others."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from importlib.util import find_spec

from msgspec import Struct

from perdure.app.session.session import Session
from perdure.engine.gates.changes import gate_of
from perdure.model.errors import CallerError
from perdure.model.gates import GateRow, GateState
from perdure.model.metrics import STORE_UP, Metric
from perdure.model.views import StoreFigures
from perdure.observers.metrics import CONTENT_TYPE, Values, of_store, text_of
from perdure.observers.shared_figures import Series

__all__ = [
    "CONTENT_TYPE",
    "alert_rules",
    "check_metrics_extra",
    "metrics_of",
    "metrics_text",
    "store_samples",
]


class MetricValue(Struct, frozen=True):
    """One value of a metric."""

    metric: str
    labels: Mapping[str, str]
    value: float


def metrics_of(session: Session) -> bytes:
    """The metrics of a session's store and of this process."""
    return metrics_text(session.opened.reader.figures(), session.figures.read())


def metrics_text(store: StoreFigures | None, process: Mapping[Series, Sequence[float]]) -> bytes:
    """Metrics as Prometheus reads them; a store that is None has not answered."""
    return text_of(values_of(store), process)


def values_of(store: StoreFigures | None) -> dict[Metric, Values]:
    """The values of the metrics of a store; one that is None has not answered."""
    up: Values = {(): float(store is not None)}
    if store is None:
        return {STORE_UP: up}
    shut = {row.name: _shut_at(row) for row in store.gates if row.state is not GateState.FLOWING}
    return {STORE_UP: up, **of_store(store, shut)}


def store_samples(store: StoreFigures) -> list[MetricValue]:
    """The same one by one."""
    return [
        MetricValue(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
        for metric, values in values_of(store).items()
        for labels, value in values.items()
    ]


def alert_rules() -> str:
    """The rules for Prometheus that come with us."""
    return (files("perdure.observers") / "alert_rules.yml").read_text(encoding="utf-8")


def check_metrics_extra(what: str) -> None:
    """Refuse what cannot be done without the library that writes metrics."""
    if find_spec("prometheus_client") is None:
        raise CallerError(f"{what} needs prometheus-client; pip install 'perdure[metrics]'")


def _shut_at(row: GateRow) -> datetime:
    """Since when a gate does not flow; of a row that an older version has written, since when it is as it is."""
    gate = gate_of(row)
    return gate.shut_at or gate.since_at or row.changed_at
