"""The how-tos that can be typed are walked through as their readers would; see walkthrough.py."""

import inspect
import math
import subprocess
import sys
from dataclasses import fields

import pytest

from perdure import App, Item, Pipeline
from perdure.rules.gate.window import WindowSettings
from tests.house.markdown import fences
from tests.house.tree import ROOT
from tests.house.walkthrough import FILE_NAME, Walk, on_free_ports, steps

PAGES = [
    "howto-enqueueing.md",
    "howto-doctor.md",
    "howto-frameworks.md",
    "howto-policies.md",
    "howto-settings.md",
    "howto-testing.md",
    "howto-transactions.md",
]

# Calls each stage of the page twice: a server that stands for its provider answers, and then fails.
ASK_ALL = """
import importlib, json, os
from perdure.testing import Answer, Upstream

LEFT = {"x-ratelimit-remaining-requests": "99"}
WRITTEN = json.dumps({"title": "Tea", "points": ["It is hot."]})
ANSWERS = {
    "summaries": {
        "id": "a", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": WRITTEN}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    },
    "claude": {
        "id": "a", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "stop_sequence": None,
        "content": [{"type": "text", "text": WRITTEN}], "usage": {"input_tokens": 1000, "output_tokens": 100},
    },
    "gemini": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": WRITTEN}]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 100, "totalTokenCount": 1100},
    },
}
ANSWERS["async_summaries"] = ANSWERS["summaries"]
ODD = ({"error": {"message": "The server had an error", "type": "server_error"}}, "<html><body>Just a moment</body></html>")
PIPES = dict.fromkeys(ANSWERS, "summaries") | {"async_summaries": "translations"}

with Upstream() as upstream:
    for name in ("OPENAI", "ANTHROPIC", "GOOGLE_GEMINI"):
        os.environ[f"{name}_BASE_URL"] = upstream.url
        os.environ[f"{name.removesuffix('_GEMINI')}_API_KEY"] = "x"
    for name, answer in ANSWERS.items():
        module = importlib.import_module(name)
        pipe = getattr(module, PIPES[name])
        upstream.script(Answer(200, answer, LEFT))
        called = pipe.call("Tea is hot.", wait_s=30)
        assert called.done, called.why
        assert called.value in (json.loads(WRITTEN), WRITTEN), called.value
        (attempt,) = called.job.attempts()
        upstream.script(Answer(503, {"error": {"message": "no"}}, {"retry-after-ms": "1"}))
        failed = pipe.call("Tea is hot.", wait_s=30)
        assert len(upstream.requests) == len(failed.job.attempts()) == 2, failed
        print(name, attempt.tokens_in, attempt.tokens_out, attempt.cost_nusd)
        for odd in ODD if "summaries" in name else ():  # what the OpenAI SDK hands on as if it were an answer
            upstream.script(Answer(200, odd), Answer(200, answer, LEFT))
            called = pipe.call("Tea is hot.", wait_s=30)
            print(*(f"{one.status} {one.kind}" for one in called.job.attempts()), called.done, sep=", ")
        module.app.close()
"""


@pytest.fixture
def walk(tmp_path) -> Walk:
    return Walk(tmp_path, frozenset())


@pytest.mark.story
@pytest.mark.parametrize("name", PAGES)
def test_a_reader_who_types_what_a_how_to_says_sees_what_it_shows(name, walk):
    walk.through((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert walk.typed


@pytest.mark.story
def test_a_reader_who_types_what_the_page_on_http_says_sees_what_it_shows(walk):
    page = (ROOT / "docs" / "howto-http.md").read_text(encoding="utf-8")
    walk.through(on_free_ports(page))
    assert sum(one.startswith("curl") for one in walk.typed) == 6


BEFORE_THE_MOVE = """
```python
# work.py
from perdure import App, StageError

app = App()


@app.stage
def answer(question):
    if "None?" in str(question):
        raise StageError("input_invalid", "no question")
    return f"{question} 42."


answers = app.pipeline("answers", answer)
```

```python
from work import answers, app

with app.working():
    answers.enqueue("One?", key="q-1").wait(wait_s=30)
    answers.enqueue("None?", key="q-2", owner="ann").wait(wait_s=30)
    for name in ("march", "april"):
        rows = [{"id": "q-2", "question": "None?"}, {"id": "q-3", "question": "None?"}]
        answers.run(rows, name=name, key="id", failure_budget=1.0).wait(wait_s=30)
app.close()
```
"""


@pytest.mark.story
def test_a_reader_who_moves_to_postgresql_takes_the_dead_letters_along(walk, database):
    page = (ROOT / "docs" / "postgres.md").read_text(encoding="utf-8")
    url = "postgresql://perdure_app:password@db.example.com:5432/work"
    assert url in page
    section = page.partition("## Moving from SQLite")[2].partition("\n## ")[0]
    walk.through(BEFORE_THE_MOVE + section.replace(url, database))
    moved = App(database)
    found = sorted(moved.jobs.list(), key=lambda one: one.key)
    assert [one.key for one in found] == [
        "q-2",
        "run 1: q-2",
        "run 1: q-3",
        "run 2: q-2",
        "run 2: q-3",
    ]
    assert (found[0].owner, found[0].payload_json) == ("ann", '"None?"')
    moved.close()
    old = App(f"sqlite:///{walk.folder}/perdure.db", read_only=True)
    assert old.dead.list() == []
    old.close()


@pytest.mark.story
def test_the_stages_of_every_sdk_make_one_call_an_attempt_and_tell_what_it_used(walk, tmp_path):
    """Not walked through block by block: each import of an SDK takes as long as ten of ours."""
    for block in fences((ROOT / "docs" / "howto-sdks.md").read_text(encoding="utf-8")):
        if block.language == "python":
            named = FILE_NAME.match(block.lines[0])
            assert named, f"line {block.line}: a block that nobody runs"
            walk.write(named[1], block)
        elif block.language == "console":
            for step in steps(block):
                walk.type(step)
    assert walk.typed == ["python try_openai.py"]
    (tmp_path / "ask_all.py").write_text(ASK_ALL)
    done = subprocess.run(
        [sys.executable, "ask_all.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    odd = [
        "retrying upstream_error, success None, True",
        "retrying invalid_output, success None, True",
    ]
    assert done.stdout.splitlines() == [
        "summaries 1000 100 450000",
        *odd,
        "claude 1000 100 4500000",
        "gemini 1000 100 550000",
        "async_summaries 0 0 0",
        *odd,
    ], done.stderr


def test_every_option_of_an_item_is_explained():
    page = (ROOT / "docs" / "howto-enqueueing.md").read_text(encoding="utf-8")
    options = list(inspect.signature(Pipeline.enqueue).parameters)[2:]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [one for one in options if not any(row.startswith(f"| `{one}") for row in rows)] == []
    (of_an_item,) = [line for line in page.splitlines() if line.startswith("An `Item` takes")]
    assert [one.name for one in fields(Item)[1:] if f"`{one.name}`" not in of_an_item] == []


# The view of the page in short, and one that fails after it has enqueued.
DJANGO = """
import sys
import django
from django.conf import settings

url, engine, name = sys.argv[1:]
parts = {"ENGINE": f"django.db.backends.{engine}", "NAME": name}
if engine == "postgresql":
    from psycopg.conninfo import conninfo_to_dict
    known = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    parts |= {ours: known[theirs] for ours, theirs in names.items() if theirs in known}
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"], DATABASES={"default": parts}
)
django.setup()

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, transaction
from perdure import App

call_command("migrate", verbosity=0)
app = App(url)
pipe = app.pipeline("greetings", app.stage(name="greet")(lambda item: item))
app.ready()

def sign_up(name):
    with transaction.atomic():
        user = get_user_model().objects.create_user(name)
        pipe.enqueue(user.pk, within=connection.connection)
        if name == "Bob":
            raise LookupError(name)

sign_up("Ada")
try:
    sign_up("Bob")
except LookupError:
    pass
print(get_user_model().objects.count(), app.jobs.count().count)
app.close()
"""


@pytest.mark.story
@pytest.mark.parametrize("engine", ["sqlite3", "postgresql"])
def test_a_row_of_django_and_its_job_are_there_together_or_not_at_all(engine, tmp_path, request):
    name = str(tmp_path / "site.db")
    url = f"sqlite:///{name}" if engine == "sqlite3" else request.getfixturevalue("database")
    (tmp_path / "sign_up.py").write_text(DJANGO)
    done = subprocess.run(
        [sys.executable, "sign_up.py", url, engine, name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "1 1\n", done.stderr


def test_the_page_on_gates_says_when_a_gate_is_held():
    page = (ROOT / "docs" / "howto-gates.md").read_text()
    window = WindowSettings()
    first, last = (math.ceil(window.fail_share * n) for n in (window.calls_min, window.calls))
    assert f"the last {window.calls} calls" in page
    assert f"once there were {window.calls_min}" in page
    assert f"({first} of the first {window.calls_min}, {last} of {window.calls})" in page
