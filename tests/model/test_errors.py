"""The error tree: drawn once, with a stable code and exit status for each class."""

import re

import pytest

import perdure
from perdure.model import errors
from perdure.model.errors import (
    CallerError,
    ConfigError,
    JobFailed,
    JobUnfinished,
    NoResult,
    PerdureError,
    RunAborted,
    RunUnfinished,
    StageError,
)
from perdure.model.kinds import Kind

CLASSES = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, PerdureError) and one.__module__ == errors.__name__
]


def drawn(tree: str) -> dict[str, str | None]:
    """Every class in the drawing and its parent, by how far it is indented."""
    found: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in tree.splitlines():
        name = re.match(r"^    ([│├└─ ]*)([A-Z]\w+)", line)
        if name is None:
            continue
        depth = len(name[1])
        path = [one for one in path if one[0] < depth]
        found[name[2]] = path[-1][1] if path else None
        path.append((depth, name[2]))
    return found


def real(classes: list[type]) -> dict[str, str | None]:
    return {
        one.__name__: None if one is PerdureError else one.__bases__[0].__name__ for one in classes
    }


def test_the_drawn_tree_is_the_real_tree():
    assert drawn(errors.__doc__ or "") == real(CLASSES)


def test_a_class_missing_in_the_drawing_would_be_caught():
    lines = (errors.__doc__ or "").splitlines()
    shortened = "\n".join(line for line in lines if "StoreFull" not in line)
    assert drawn(shortened) != real(CLASSES)


def test_every_code_is_unique_and_its_own():
    assert len({one.code for one in CLASSES}) == len(CLASSES)
    assert all("code" in vars(one) for one in CLASSES)


def test_the_codes_and_exit_statuses_are_stable():
    assert {one.__name__: (one.code, one.exit_code, one.http_status) for one in CLASSES} == {
        "PerdureError": ("error", 1, 500),
        "CallerError": ("caller_error", 2, 400),
        "PayloadRefused": ("payload_refused", 2, 422),
        "UnknownName": ("unknown_name", 2, 404),
        "AppNotFound": ("app_not_found", 2, 404),
        "NotCancellable": ("not_cancellable", 2, 409),
        "NotRetriable": ("not_retriable", 2, 409),
        "NotCompletable": ("not_completable", 2, 409),
        "NotChangeable": ("not_changeable", 2, 409),
        "CursorTooOld": ("cursor_too_old", 2, 410),
        "NoResult": ("no_result", 2, 409),
        "JobUnfinished": ("job_unfinished", 2, 409),
        "JobFailed": ("job_failed", 2, 409),
        "RunUnfinished": ("run_unfinished", 2, 409),
        "RunAborted": ("run_aborted", 2, 409),
        "ConfigError": ("config_error", 2, 500),
        "StoreError": ("store_error", 10, 503),
        "StoreUnavailable": ("store_unavailable", 11, 503),
        "StoreBusy": ("store_busy", 12, 503),
        "StoreFull": ("store_full", 13, 507),
        "StoreReadOnly": ("store_read_only", 14, 503),
        "StoreDenied": ("store_denied", 18, 503),
        "StoreDamaged": ("store_damaged", 15, 503),
        "SchemaMismatch": ("schema_mismatch", 16, 503),
        "WorkerDead": ("worker_dead", 17, 409),
        "StageError": ("stage_error", 1, 500),
        "OutputError": ("output_error", 1, 500),
        "OutputInvalid": ("output_invalid", 1, 500),
        "OutputTruncated": ("output_truncated", 1, 500),
        "OutputRefused": ("output_refused", 1, 500),
        "AnswerError": ("answer_error", 1, 500),
        "BugError": ("bug", 70, 500),
    }


@pytest.mark.parametrize("one", CLASSES)
def test_exit_and_http_statuses_are_possible_and_tell_of_failure(one):
    assert 1 <= one.exit_code <= 125  # a shell keeps 126 and above for itself
    assert 400 <= one.http_status <= 599


@pytest.mark.parametrize("one", CLASSES)
def test_every_class_can_be_imported_from_the_package(one):
    assert getattr(perdure, one.__name__) is one


@pytest.mark.parametrize("one", [JobUnfinished, RunUnfinished])
def test_waiting_too_long_is_a_timeout_as_python_has_it(one):
    with pytest.raises(TimeoutError, match="still queued after 1 s"):
        raise one("still queued after 1 s")


@pytest.mark.parametrize("one", [JobFailed, JobUnfinished, RunAborted, RunUnfinished])
def test_a_result_that_is_not_there_is_no_mistake_of_the_caller(one):
    assert issubclass(one, NoResult)
    assert not issubclass(one, CallerError)


@pytest.mark.parametrize("one", CLASSES)
def test_every_class_says_what_it_means(one):
    assert (one.__doc__ or "").strip().endswith((".", ":", "report it."))


def test_a_stage_cannot_say_that_its_worker_is_lost():
    with pytest.raises(ConfigError, match="worker is lost"):
        StageError("worker_lost", "goodbye")


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.WORKER_LOST}))
def test_a_stage_can_name_each_other_kind_as_text(kind):
    error = StageError(kind.value, "no total", wait_s=2.5)
    assert (error.kind, str(error), error.wait_s) == (kind, "no total", 2.5)


def test_a_stage_error_of_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        StageError("rate_limit", "slow down")
    assert "'rate_limit'" in str(caught.value)
    assert all(kind.value in str(caught.value) for kind in Kind)
