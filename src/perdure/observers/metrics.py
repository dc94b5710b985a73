"""The numbers of the store and of processes as Prometheus reads them: text, by the one table of metrics.

It needs prometheus-client, which is imported with the first text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from perdure.model.gates import GateState
from perdure.model.limits import METRIC_CODES_MAX
from perdure.model.metrics import (
    ATTEMPTS,
    COST,
    CREATED,
    ENDED,
    FAILED,
    GATE_HELD,
    GATE_STATE,
    JOBS,
    LETTERS,
    METRICS,
    OTHER_CODE,
    QUEUE_AGE,
    RETRIES,
    REVIVED,
    TOKENS,
    WAITS,
    WORKERS,
    Metric,
)
from perdure.model.runs import NANO
from perdure.model.views import OPEN, DeathCount, Depth, Flow, StoreFigures
from perdure.model.workers import Role
from perdure.observers.shared_figures import Series

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Values = dict[tuple[str, ...], float]
_KNOWN: Mapping[str, Metric] = {one.name: one for one in METRICS}
_ENDED_STATES = ("succeeded", "failed", "cancelled")


def text_of(store: Mapping[Metric, Values], process: Mapping[Series, Sequence[float]]) -> bytes:
    """The text of the values of a store and of processes."""
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> "Iterator[Family]":
            yield from _families(store)
            yield from _process_families(process)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return generate_latest(registry)


def of_store(store: StoreFigures, shut_at: Mapping[str, datetime]) -> dict[Metric, Values]:
    """The values of the store's metrics, by their labels. ``shut_at`` is since when gates do not flow."""
    return {
        JOBS: _standing(store.depths),
        QUEUE_AGE: _ages(store),
        **_happened(store.flows),
        FAILED: _by_code(store.deaths),
        LETTERS: _added(
            ((one.pipeline, one.stage, one.reason.value, one.kind), one.letters)
            for one in store.deaths
        ),
        GATE_STATE: {
            (row.name, state.value): float(row.state is state)
            for row in store.gates
            for state in GateState
        },
        GATE_HELD: {
            (row.name,): max(0.0, (store.now - shut_at[row.name]).total_seconds())
            if row.name in shut_at
            else 0.0
            for row in store.gates
        },
        WORKERS: {
            (role.value,): float(
                sum(one.role is role and one.dead_at is None for one in store.workers)
            )
            for role in Role
        },
    }


def _standing(depths: Mapping[str, Sequence[Depth]]) -> Values:
    """Each job in one state: behind a gate or a pause it is that, whatever it waits for besides."""

    def states() -> Iterator[tuple[tuple[str, ...], float]]:
        for closed, places in depths.items():
            for one in places:
                queued = {"ready": one.ready, "scheduled": one.waiting, "retrying": one.retrying}
                kept = sum(queued.values())
                shown = {
                    **(queued if closed == OPEN else dict.fromkeys(queued, 0)),
                    "held": kept if closed == "held" else 0,
                    "paused": kept if closed == "paused" else 0,
                    "processing": one.processing,
                    "succeeded": one.succeeded,
                    "failed": one.failed,
                    "cancelled": one.cancelled,
                }
                for state, jobs in shown.items():
                    yield (one.queue, one.pipeline, one.stage, state), jobs

    return _added(states())


def _ages(store: StoreFigures) -> Values:
    queues = {one.queue for places in store.depths.values() for one in places}
    ages: Values = {(queue, "ready"): 0.0 for queue in sorted(queues)}
    for one in store.heads:
        age_s = max(0.0, (store.now - one.due_at).total_seconds())
        ages[one.queue, "ready" if one.closed == OPEN else one.closed] = age_s
    return ages


def _happened(flows: Sequence[Flow]) -> dict[Metric, Values]:
    found: dict[Metric, list[tuple[tuple[str, ...], float]]] = {
        one: [] for one in (CREATED, ENDED, REVIVED, ATTEMPTS, RETRIES, WAITS, TOKENS, COST)
    }
    for one in flows:
        where = (one.pipeline, one.stage)
        found[CREATED].append(((one.pipeline,), one.created))
        for state in _ENDED_STATES:
            found[ENDED].append(((*where, state), getattr(one, state)))
        found[REVIVED].append((where, one.revived))
        found[ATTEMPTS].append((where, one.attempts))
        found[RETRIES].append((where, one.retries))
        found[WAITS].append((where, one.waits))
        found[TOKENS] += [((*where, "in"), one.tokens_in), ((*where, "out"), one.tokens_out)]
        found[COST].append((where, one.cost_nusd / NANO))
    return {metric: _added(pairs) for metric, pairs in found.items()}


def _by_code(deaths: Sequence[DeathCount]) -> Values:
    """Per kind and stage, only the first codes that occurred get a series, so that series stay stable."""
    shown: dict[tuple[str, ...], set[str]] = {}

    def codes() -> Iterator[tuple[tuple[str, ...], float]]:
        for one in deaths:  # what struck first comes first
            place = (one.pipeline, one.stage, one.reason.value, one.kind)
            known = shown.setdefault(place, set())
            if len(known) < METRIC_CODES_MAX:
                known.add(one.code)
            yield (*place, one.code if one.code in known else OTHER_CODE), one.ever

    return _added(codes())


def _added(pairs: Iterable[tuple[tuple[str, ...], float]]) -> Values:
    sums: Values = {}
    for labels, value in pairs:
        sums[labels] = sums.get(labels, 0.0) + value
    return sums


def _families(found: Mapping[Metric, Values]) -> "Iterator[Family]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for metric, values in found.items():
        make = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
        family = make(metric.name, metric.sentence, labels=metric.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        yield family


def _process_families(process: Mapping[Series, Sequence[float]]) -> "Iterator[Family]":
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    for name, series in groupby(sorted(process), key=lambda one: one[0]):
        metric = _KNOWN[name]
        if metric.type == "counter":
            counter = CounterMetricFamily(name, metric.sentence, labels=metric.labels)
            for one in series:
                counter.add_metric(one[1], process[one][0])
            yield counter
            continue
        histogram = HistogramMetricFamily(name, metric.sentence, labels=metric.labels)
        for one in series:
            *counts, total = process[one]
            histogram.add_metric(one[1], _cumulative(metric.buckets, counts), total)
        yield histogram


def _cumulative(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """How many values were at most each bound, and all of them."""
    so_far, found = 0.0, []
    for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
        so_far += count
        found.append((bound if isinstance(bound, str) else repr(bound), so_far))
    return found
