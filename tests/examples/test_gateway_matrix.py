"""The document's matrix, cell by cell, against the running services: nine codes by API, worker and costly worker.

Each cell is a request of its own to a provider of its own, all at once. What it came to is read from four sides: what the API
answered, the attempts with their policies, the lines of the log with their delays, and the calls that the provider has counted.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx2
from examples.gateway.schemas import CODES, HTTP_STATUS

from perdure import App
from tests.examples.converter_kit import until
from tests.examples.gateway_kit import Lines, Trial, error_in, logged, trial

FIRST, SECOND, SOON = (0.8, 1.2), (1.6, 2.4), (0.3, 0.8)  # of waits: the least and the most
SCHEMA = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}

# How the provider is made to fail, so that the gateway tells this code.
SCRIPTS = {
    "RATE_LIMITED": "429",
    "INVALID_UPSTREAM_RESPONSE": "drift",
    "TIMEOUT": "hang",
    "UPSTREAM_UNAVAILABLE": "503",
    "UPSTREAM_ERROR": "500",
    "CONFIG_MISSING": "401",
    "INVALID_REQUEST": "422",
    "INTERNAL_ERROR": "loud",  # an error that breaks the schema
    "UNKNOWN": "302",
}


class Cell(NamedTuple):
    """What a code comes to in a column: the API's answer, and attempts and waits by policy."""

    status: int
    sync: int
    sync_waits: list[tuple[float, float]]
    background: int
    background_waits: list[tuple[float, float]]


RETRIED = (3, [FIRST, SECOND])
ONCE_MORE = (2, [FIRST])
NEVER = (1, [])


def handed_over(calls: int, waits: list[tuple[float, float]]) -> Cell:
    """A worker goes on with its own three tries."""
    return Cell(202, calls, waits, *RETRIED)


def failed(code: str) -> Cell:
    return Cell(HTTP_STATUS[code], 1, [], 0, [])


WAITED_FOR = ("INVALID_UPSTREAM_RESPONSE", "TIMEOUT", "UPSTREAM_UNAVAILABLE", "UPSTREAM_ERROR")
FINAL = ("CONFIG_MISSING", "INVALID_REQUEST")
OWN = ("INTERNAL_ERROR", "UNKNOWN")
MATRIX = {
    ("RATE_LIMITED", "api"): handed_over(1, []),
    **{(code, "api"): handed_over(2, [SOON]) for code in WAITED_FOR},
    **{(code, "api"): failed(code) for code in FINAL + OWN},
    **{(code, "worker"): Cell(202, 0, [], *RETRIED) for code in ("RATE_LIMITED", *WAITED_FOR)},
    **{(code, "costly"): Cell(202, 0, [], *ONCE_MORE) for code in ("RATE_LIMITED", *WAITED_FOR)},
    **{(code, who): Cell(202, 0, [], *NEVER) for code in FINAL for who in ("worker", "costly")},
    **{(code, who): Cell(202, 0, [], *ONCE_MORE) for code in OWN for who in ("worker", "costly")},
}
POLICIES = {"api": "gateway-worker/2", "worker": "gateway-worker/2", "costly": "gateway-costly/2"}


def provider_of(code: str, column: str) -> str:
    name = f"{code}-{column}".lower().replace("_", "-")
    return f"hasty-{name}" if code == "TIMEOUT" else name


def prompt_of(code: str, column: str) -> str:
    return f"script: {SCRIPTS[code]} | {code} for {column}"


def ask(system: Trial, code: str, column: str) -> httpx2.Response:
    more = {"schema": SCHEMA} if code == "INVALID_UPSTREAM_RESPONSE" else {}
    if column == "costly":
        more["costly"] = True
    return system.post(
        prompt_of(code, column),
        provider_of(code, column),
        later=column != "api",
        x_request_id=id_of(code, column),
        **more,
    )


def test_the_matrix_has_every_code_in_every_column():
    assert set(SCRIPTS) == set(CODES)
    assert set(MATRIX) == {(code, column) for code in CODES for column in POLICIES}


def test_every_cell_of_the_matrix_holds_against_the_running_services(tmp_path):
    with (
        logged() as lines,
        trial(tmp_path, [provider_of(*cell) for cell in MATRIX]) as system,
        ThreadPoolExecutor(len(MATRIX)) as users,
    ):
        answers = dict(zip(MATRIX, users.map(lambda cell: ask(system, *cell), MATRIX), strict=True))
        app = system.texts.app
        until("every job has ended", lambda: is_over(app), within_s=120)
        calls = system.calls()
        wrong = [
            line
            for cell in MATRIX
            for line in deviations(system, lines, cell, answers[cell], calls[prompt_of(*cell)])
        ]
    assert not wrong, "\n".join(wrong)


def is_over(app: App) -> bool:
    return not any(app.jobs.list(state=state, limit=1) for state in ("queued", "processing"))


def deviations(
    system: Trial, lines: Lines, cell: tuple[str, str], answer: httpx2.Response, calls: int
) -> list[str]:
    """What is not as the matrix says, in one cell."""
    code, column = cell
    due = MATRIX[cell]
    found = [f"answered {answer.status_code}"] if answer.status_code != due.status else []
    error = error_in(system.told(answer) if answer.status_code == 202 else answer)
    if (error["code"], error["httpStatus"]) != (code, HTTP_STATUS[code]):
        found.append(f"ended with {error['code']}")
    (view,) = system.texts.app.jobs.list(pipeline=pipeline_of(code, column))
    attempts = system.texts.app.job(view.id).attempts()
    by_policy = Counter(one.policy for one in attempts)
    if by_policy != Counter({"gateway-sync/1": due.sync, POLICIES[column]: due.background}):
        found.append(f"attempts by policy: {dict(by_policy)}")
    if {one.code for one in attempts} != {code}:
        found.append(f"attempts said {[one.code for one in attempts]}")
    if calls != due.sync + due.background:
        found.append(f"the provider was called {calls} times")
    return [f"{code}, {column}: {one}" for one in found + log_deviations(lines, cell)]


def log_deviations(lines: Lines, cell: tuple[str, str]) -> list[str]:
    """Each try again has a line with its code, the attempt, how many there may be, and its delay (R109)."""
    due, retries = MATRIX[cell], lines.retries(id_of(*cell))
    tries = ((due.sync_waits, due.sync), (due.background_waits, due.background))
    names = ("error_code", "attempt", "failures", "maxAttempts")
    told = [tuple(one[name] for name in names) for one in retries]
    if told != [(cell[0], n, n, most) for waits, most in tries for n in range(1, len(waits) + 1)]:
        return [f"logged {told}"]
    handed_over = [one["delayMs"] / 1_000 for one in lines.hand_overs(id_of(*cell))]
    if len(handed_over) != (1 if due.sync and due.background else 0):
        return [f"its hand-over was not logged once: {handed_over}"]
    if any(not SOON[0] <= wait_s <= SOON[1] for wait_s in handed_over):
        return [f"handed over to be tried after {handed_over} s"]  # never back to back (R51)
    delays = [one["delayMs"] / 1_000 for one in retries]
    bounds = due.sync_waits + due.background_waits
    fits = [low <= delay <= high for delay, (low, high) in zip(delays, bounds, strict=True)]
    return [] if all(fits) else [f"waits {delays}"]


def id_of(code: str, column: str) -> str:
    return f"req-{provider_of(code, column)}"


def pipeline_of(code: str, column: str) -> str:
    return provider_of(code, column) + ("-costly" if column == "costly" else "")
