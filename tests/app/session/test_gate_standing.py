"""A gate as an application asks for it: for a line to those who wait."""

import asyncio

import pytest

from perdure import App, UnknownName
from perdure.app.surface import gate_control


@pytest.fixture
def app(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    app.upstream("model", credential="key")

    @app.stage(upstream="model", policy="standard")
    def ask(item):
        return item

    app.pipeline("answers", ask)
    yield app
    app.close()


def hold(app: App, name: str, for_text: str | None = None) -> None:
    gate_control.hold(
        app._session.opened, name, by_whom="ann", reason=f"{name} is ill", for_text=for_text
    )


def test_a_gate_that_nobody_has_touched_flows(app):
    assert (app.gate("model").state, app.gate("model").flows) == ("flowing", True)
    assert app.gate("key").flows


def test_an_app_is_told_whether_a_gate_is_held_and_why(app):
    app.ready()
    hold(app, "model", "10m")
    held = app.gate("model")
    assert (held.state, held.flows, held.reason, held.held_by) == (
        "held",
        False,
        "model is ill",
        None,
    )
    assert held.held_until is not None
    assert app.gate("key").flows


def test_what_holds_a_credential_holds_its_upstreams(app):
    with app.working(poll_s=0.05):  # a worker says which credential an upstream has
        app.get_pipeline("answers").enqueue("one").result(wait_s=60)
    hold(app, "key")
    held = asyncio.run(app.gate_async("model"))
    assert (held.flows, held.reason, held.held_by, held.held_until) == (
        False,
        "key is ill",
        "key",
        None,
    )


def test_a_gate_that_is_not_there_is_told_with_those_that_are(app):
    with pytest.raises(UnknownName, match="no upstream or credential 'modle'; it has: key, model"):
        app.gate("modle")
