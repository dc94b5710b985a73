"""What the tables of the real SDKs share: the exceptions are theirs, made by a server that misbehaves."""

import gc
import importlib
import os
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest

from perdure.model.outcomes import Evidence, Raised
from perdure.model.verdicts import Failure
from perdure.rules.classify import classify
from perdure.rules.evidence import evidence_of
from perdure.rules.explain import Question, schedule
from perdure.rules.presets import preset
from perdure.testing import Answer

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TIMEOUT_S = 0.25  # of clients whose answer never comes
PATIENT_S = 20.0  # of all others: a busy machine must not look like a failure


@dataclass(frozen=True)
class Case:
    """An answer of the server, and what the client's exception means."""

    what: str
    answer: Answer
    kind: str
    hint_s: float | None = None
    rule: str | None = None
    timeout_s: float = PATIENT_S


def cases(*table: Case) -> Any:
    """A table as parameters of a test."""
    assert len({case.what for case in table}) == len(table)
    return pytest.mark.parametrize("case", table, ids=[case.what for case in table])


def load(name: str) -> ModuleType:
    """An SDK; where it is not installed its tests are skipped at home, and fail under CI."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an SDK's own warnings on import are not ours to mend
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"missing: {name}")


class Sdk:
    """An SDK that is loaded when it is first used: every process of a parallel run reads these files, few run their tests."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks what it is while it looks for tests
            raise AttributeError(name)
        return getattr(load(self._name), name)


def seen(call: Callable[[], Any]) -> tuple[Evidence, Failure]:
    """The evidence and the verdict of what a call raises, or of what it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # some clients leave sockets to chance
        try:
            thing = call()
        except pytest.skip.Exception:  # the SDK is missing
            raise
        except BaseException as error:
            evidence = evidence_of(error)
            traceback.clear_frames(error.__traceback__)
        else:
            evidence = evidence_of(thing)
        gc.collect(1)
    verdict = classify(Raised(evidence), now=NOW)
    assert isinstance(verdict, Failure)
    return evidence, verdict


def waits_in_reports(call: Callable[[], Any]) -> list[tuple[float, float]]:
    """The least and the most wait after each attempt of a report job, if each of them failed like this call."""
    rows = schedule(preset("reports"), Question(seen(call)[1]))
    return [(one.delay_s.min, one.delay_s.max) for _, one in rows if one.delay_s is not None]


RETRIED_IN_REPORTS = [(24.0, 36.0), (96.0, 144.0), (384.0, 576.0)]


def check(case: Case, call: Callable[[], Any]) -> Evidence:
    """Whether the call's failure is what the table says."""
    evidence, verdict = seen(call)
    found = (verdict.kind.value, verdict.hint_s)
    assert found == (case.kind, case.hint_s), (verdict, evidence)
    if case.rule is not None:
        assert verdict.rule == case.rule, evidence
    return evidence
