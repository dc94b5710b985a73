"""App.every: what an app may declare to be enqueued again and again."""

from typing import Any

import pytest

from perdure import App, ConfigError, PayloadRefused
from perdure.engine.upkeep.cron import rhythm_of
from tests.house.markdown import fences
from tests.house.tree import ROOT


@pytest.fixture
def app(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    yield app
    app.close()


@pytest.fixture
def pipe(app):
    @app.stage
    def one(item: dict[str, int] | None):
        return item

    return app.pipeline("p", one)


def test_schedules_are_kept_as_they_are_declared(app, pipe):
    app.every("15m", pipe, {"n": 1})
    app.every(
        "0 7 * * 1-5", pipe, name="mornings", owner="ann", timezone="Europe/Berlin", priority=5
    )
    first, second = app._session.schedules.values()
    assert (first.name, first.pipeline, first.owner, first.payload_json) == (
        "p",
        "p",
        "",
        '{"n":1}',
    )
    assert first.rhythm == rhythm_of("15m")
    assert (second.name, second.owner, second.payload_json) == ("mornings", "ann", "null")
    assert (first.priority, second.priority) == (0, 5)
    assert second.rhythm == rhythm_of("0 7 * * 1-5", timezone="Europe/Berlin")


def test_nothing_is_opened_or_written_by_a_declaration(app, pipe, tmp_path):
    app.every("15m", pipe, {"n": 1})
    assert list(tmp_path.iterdir()) == []


def test_two_schedules_of_one_name_are_refused(app, pipe):
    app.every("15m", pipe)
    with pytest.raises(ConfigError, match="declared twice; tell them apart with name="):
        app.every("1h", pipe)
    assert len(app._session.schedules) == 1


def test_a_pipeline_of_another_app_is_refused(app, tmp_path):
    other = App(f"sqlite:///{tmp_path / 'other.db'}")

    @other.stage
    def one(item):
        return item

    with pytest.raises(ConfigError, match="'p' of a schedule belongs to another app"):
        app.every("15m", other.pipeline("p", one))


def test_what_is_no_pipeline_or_no_rhythm_is_refused(app, pipe):
    with pytest.raises(ConfigError, match="it must be a Pipeline"):
        app.every("15m", "p")
    with pytest.raises(ConfigError, match="write an interval such as"):
        app.every("now and then", pipe)
    assert app._session.schedules == {}


def test_the_item_passes_the_door_when_it_is_declared(app, pipe):
    with pytest.raises(PayloadRefused, match="NUL"):
        app.every("15m", pipe, {"a\x00": 1})
    with pytest.raises(PayloadRefused, match="does not fit stage 'one'"):
        app.every("15m", pipe, {"n": "one"})


def test_the_how_to_declares_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "howto-periodic.md").read_text(encoding="utf-8")
    (code,) = [one for one in fences(text) if one.language == "python"]
    names: dict[str, Any] = {}
    exec("\n".join(code.lines), names)
    app = names["app"]
    assert [(one.name, one.rhythm.text) for one in app._session.schedules.values()] == [
        ("reports", "every 15m"),
        ("mornings", "cron 0 7 * * 1-5 in Europe/Berlin"),
    ]
    app.close()
