"""What it costs to judge one failure, beside tenacity and stamina handling one failing call.

Each of the three does its whole work for one failure and one success after it, without waiting:
Perdure turns the exception into evidence, names its kind and decides with an explanation; the other
two catch it, consult their stop and wait rules and call again. Rounds are interleaved, so that a
noisy machine disturbs all alike; medians and the ratio to tenacity are printed.

    python benchmarks/decide.py [--rounds N] [--json]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime

import stamina
import tenacity

from perdure.model.jobs import Counters
from perdure.model.outcomes import Raised
from perdure.rules.classify import classify
from perdure.rules.decide import FLOWING, Standing, decide
from perdure.rules.evidence import evidence_of
from perdure.rules.presets import preset

CALLS = 2_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = preset("standard")
STANDING = Standing(Counters(starts=1))


class Failing:
    """Fails on every odd call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls % 2:
            raise ConnectionResetError(104, "Connection reset by peer")
        return self.calls


def perdure_once(call: Failing) -> None:
    """One failure judged, and the call that then succeeds."""
    try:
        call()
    except ConnectionResetError as error:
        verdict = classify(Raised(evidence_of(error)), now=NOW)
        decide(STANDING, verdict, POLICY, FLOWING, NOW, 0.5)
        call()


def tenacity_once(call: Failing) -> None:
    """The same by tenacity, with an exponential wait of zero length."""
    _tenacity(call)


def stamina_once(call: Failing) -> None:
    """The same by stamina, with waits of zero length."""
    _stamina(call)


_tenacity = tenacity.Retrying(
    stop=tenacity.stop_after_attempt(5),
    wait=tenacity.wait_random_exponential(multiplier=0, max=0),
    retry=tenacity.retry_if_exception_type(ConnectionError),
    sleep=lambda _: None,
)
_stamina = stamina.RetryingCaller(
    attempts=5, wait_initial=0, wait_max=0, wait_jitter=0, timeout=None
).on(ConnectionError)


def microseconds(once: Callable[[Failing], None]) -> float:
    """Time for one failure, in microseconds."""
    call = Failing()
    start = time.perf_counter()
    for _ in range(CALLS):
        once(call)
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    """Measure, and print a table or JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    stamina.instrumentation.set_on_retry_hooks([])
    once = {"perdure": perdure_once, "tenacity": tenacity_once, "stamina": stamina_once}
    taken: dict[str, list[float]] = {name: [] for name in once}
    for _ in range(given.rounds):
        for name, function in once.items():
            taken[name].append(microseconds(function))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    rows = {
        name: {
            "us": round(medians[name], 2),
            "us_min": round(min(taken[name]), 2),
            "ratio_to_tenacity": round(medians[name] / medians["tenacity"], 2),
        }
        for name in once
    }
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    for name, row in rows.items():
        print(
            f"{name:<10} {row['us']:>8} us  (least {row['us_min']})  "
            f"{row['ratio_to_tenacity']} x tenacity"
        )


if __name__ == "__main__":
    main()
