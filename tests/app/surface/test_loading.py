"""What commands take for an app or a pipeline: a variable of a module, or a name that was declared."""

import sys

import pytest

from perdure.app import load_pipeline, load_session
from perdure.model.errors import AppNotFound, ConfigError, PerdureError, UnknownName

SHOP = """
import perdure

app = perdure.App("sqlite:///work.db")

@app.stage
def judge(item):
    return item

pipe = app.pipeline("flaky", judge)
judged = app.pipeline("judge", judge)  # declared with the name of a function
both = app.pipeline("swapped", judge)
swapped = app.pipeline("both", judge)

second = perdure.App("sqlite:///second.db")

@second.stage
def other(item):
    return item

only = second.pipeline("other", other)
number = 5
"""
LONE = """
import perdure
work = perdure.App("sqlite:///work.db")

@work.stage
def one(item):
    return item

work.pipeline("one", one)
"""
GUEST = "from shop import pipe as borrowed"
CROWD = (
    SHOP
    + """
third = perdure.App("sqlite:///third.db")
third.pipeline("flaky", third.stage(name="x")(lambda item: item))
"""
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name, text in {"shop": SHOP, "lone": LONE, "guest": GUEST, "crowd": CROWD}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    for name in ("shop", "lone", "guest", "crowd"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("target", "reference", "declared"),
    [
        ("shop:pipe", "shop:app", "flaky"),  # a variable
        ("shop:flaky", "shop:app", "flaky"),  # a declared name
        ("shop:app:flaky", "shop:app", "flaky"),
        ("shop:judge", "shop:app", "judge"),  # the function of that name is no pipeline
        ("shop:both", "shop:app", "swapped"),  # a variable goes before a declared name
        ("shop:app:both", "shop:app", "both"),
        ("shop:second", "shop:second", "other"),  # an app that has only one
        ("shop:only", "shop:second", "other"),
        ("shop:second:other", "shop:second", "other"),
        ("lone", "lone:work", "one"),  # the only app of its module
        ("lone:work", "lone:work", "one"),
        ("lone:one", "lone:work", "one"),
        ("guest:borrowed", "guest:borrowed", "flaky"),  # its app has no variable there
        ("crowd:pipe", "crowd:app", "flaky"),
    ],
)
def test_a_pipeline_is_found_by_variable_or_declared_name(target, reference, declared):
    found, session, pipe = load_pipeline(target)
    assert (found, pipe.name) == (reference, declared)
    assert session.laid_pipelines[declared] is pipe._laid
    assert load_session(target) is session  # so a worker of the same target serves it
    assert load_session(found) is session


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("shop:app", UnknownName, "it has: both, flaky, judge, swapped"),
        ("shop", UnknownName, "names no pipeline, and the app has not just one"),
        ("shop:app:pipe", UnknownName, "no pipeline 'pipe'; it has: both, flaky"),
        ("shop:nosuch", AppNotFound, "no app or pipeline 'nosuch'; it has the apps: app, second;"),
        ("shop:nosuch", AppNotFound, "the pipelines: both, flaky, judge, judged, only, other, pipe, swapped"),
        ("shop:number", AppNotFound, "no app or pipeline 'number'"),
        ("shop:number:flaky", AppNotFound, "shop:number is no perdure.App"),
        ("crowd:flaky", AppNotFound, "write one of: crowd:app:flaky, crowd:third:flaky"),
        ("shop.py:app", PerdureError, "shop.py"),
        ("nowhere:app", AppNotFound, "no module 'nowhere' here"),
    ],
)  # fmt: skip
def test_what_cannot_be_found_is_named_with_what_there_is(target, error, words):
    with pytest.raises(error) as refused:
        load_pipeline(target)
    assert words in str(refused.value)


def test_without_a_pipeline_in_particular_a_worker_needs_an_app_only():
    assert [*load_session("shop").laid_pipelines] == ["flaky", "judge", "swapped", "both"]
    assert [*load_session("shop:second").laid_pipelines] == ["other"]


MISTAKES = [
    ("@app.stage(timeout_s=0)\ndef one(item): ...", "declares.py:4: ", "timeout_s"),
    ("def one(item): ...\napp.pipeline('p', one)", "declares.py:5: ", "one"),
    (
        "app.every('never', app.pipeline('p', app.stage(lambda item: 1)))",
        "declares.py:4: ",
        "never",
    ),
]


@pytest.mark.parametrize(("text", "place", "word"), MISTAKES)
def test_a_mistake_in_a_declaration_is_told_with_its_file_and_line(tmp_path, text, place, word):
    (tmp_path / "declares.py").write_text(f"from perdure import App\napp = App()\n\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_session("declares")
    assert str(caught.value).startswith(place)
    assert word in str(caught.value)
