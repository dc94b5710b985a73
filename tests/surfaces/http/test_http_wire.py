"""What stands on the wire: names, moments and money in one form, and the codes that the documents say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.app.surface.serving import pipeline_named
from perdure.model import errors
from perdure.surfaces.http import problems
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.openapi import openapi
from perdure.surfaces.http.problems import CODES

DOCS = Path(__file__).parents[3] / "docs"
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_MONEY = re.compile(r"\d+\.\d+")


def fields() -> Iterator[tuple[str, Any]]:
    """Every field of every body and answer, and every parameter of a path or a query, by the document."""
    document = openapi(ENDPOINTS)
    for kind in document["components"]["schemas"].values():
        yield from kind.get("properties", {}).items()
    for path in document["paths"].values():
        for operation in path.values():
            for one in operation["parameters"]:
                if one["in"] != "header":
                    yield one["name"], one["schema"]


def is_moment(name: str) -> bool:
    return name.endswith(("_at", "_until")) or name in ("at", "until", "since", "now")


def kinds_of(schema: Any) -> set[tuple[str | None, str | None]]:
    rows = schema.get("anyOf", [schema])
    found = {(one.get("type"), one.get("format")) for one in rows}
    return found - {("null", None)}


def test_every_name_is_snake_case_every_moment_a_date_time_and_money_a_text():
    found = list(fields())
    assert len(found) > 150
    assert [name for name, _ in found if not _SNAKE.fullmatch(name)] == []
    moments = [(name, kinds_of(kind)) for name, kind in found if is_moment(name)]
    assert [one for one in moments if one[1] != {("string", "date-time")}] == []
    money = [(name, kinds_of(kind)) for name, kind in found if "usd" in name]
    assert {kind for _, kinds in money for kind, _ in kinds} == {"string"}


def values(told: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of an answer, with its name."""
    if isinstance(told, dict):
        for field, value in told.items():
            yield from values(value, field)
    elif isinstance(told, list):
        for value in told:
            yield from values(value, name)
    else:
        yield name, told


def test_moments_are_in_utc_and_money_is_a_decimal_in_every_answer(app, client):
    pipe = pipeline_named(app._session, "shouting")
    with app.working(concurrency=1):
        ids = [
            pipe.enqueue(item, owner="ann").wait().id for item in ({"text": "x"}, {"broken": True})
        ]
        run = pipe.run([{"text": "x"}], name="nightly", owner="ann")
        run.wait()
    root = client("admin", owner="")
    paths = ["jobs", "runs", "dead", "dead/groups", "dead/bulks", "stats", "audit-log", "workers"]
    paths += [f"jobs/{id}" for id in ids] + [f"runs/{run.id}", f"runs/{run.id}/report"]
    found = [one for path in paths for one in values(root.get(f"/api/{path}").json())]
    moments = [one for one in found if is_moment(one[0]) and one[1] is not None]
    assert len(moments) > 30
    assert [one for one in moments if not _MOMENT.fullmatch(one[1])] == []
    money = [one for one in found if "usd" in one[0] and one[1] is not None]
    assert len(money) > 3
    assert [
        one for one in money if not (isinstance(one[1], str) and _MONEY.fullmatch(one[1]))
    ] == []


def refused_with() -> set[str]:
    """Every code that is written where something is refused."""
    found = set()
    for path in Path(problems.__file__).parent.glob("*.py"):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Refused":
                found |= {str(word.value) for word in ast.walk(one.args[0])
                          if isinstance(word, ast.Constant) and word.value in CODES}  # fmt: skip
                first = one.args[0]
                assert not isinstance(first, ast.Constant) or first.value in CODES, first.value
    return found


def error_codes() -> dict[str, int]:
    """The codes and statuses of errors whose words a caller is told."""
    told = (errors.CallerError, errors.NoResult)
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    return {one.code: one.http_status for one in classes if issubclass(one, told)}


def test_every_code_of_the_table_is_told_somewhere_and_has_the_status_that_its_error_has():
    raised = error_codes()
    assert set(CODES) - refused_with() - set(raised) == set()
    said = {code: CODES[code][0] for code in raised if code in CODES}
    assert said == {code: raised[code] for code in said}
    assert CODES["store_error"][0] == errors.StoreError.http_status
    declared = {code for one in ENDPOINTS for code in one.problems}
    nowhere = (
        {code for code in CODES if code in raised} - declared - {"caller_error", "payload_refused"}
    )
    assert nowhere == set(), "no endpoint says that it answers with these"


def test_the_documents_have_every_code_with_its_status():
    reference = (DOCS / "reference" / "http.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| (\d{3}) \| (.*?) \| \d+ endpoints \|$", reference, re.MULTILINE
    )
    assert {code: (int(status), title) for code, status, title in rows} == dict(CODES)
    howto = (DOCS / "howto-http.md").read_text()
    named = [(code, int(status)) for status, code in re.findall(r"\b([45]\d\d) `(\w+)`", howto)]
    assert len(named) > 10
    assert [one for one in named if CODES[one[0]][0] != one[1]] == []


def test_how_tos_say_of_a_failed_job_what_its_error_says():
    """Endpoints of one's own answer with the status of the error, in every how-to the same."""
    status = errors.JobFailed.http_status
    for name in ("howto-calls.md", "howto-frameworks.md"):
        told = (DOCS / name).read_text()
        assert re.search(rf"\b{status}\b", told), name
        assert not re.search(r"\b422\b.*(cannot be answered|job_failed)", told), name
