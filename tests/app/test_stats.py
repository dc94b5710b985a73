"""`App.stats`: the tallies, for an application's own numbers."""

from contextlib import closing

import pytest

from perdure import App, Stats
from tests.app.worker.working_off import worked_off


@pytest.mark.parametrize("url", ["sqlite", "postgres"])
def test_an_app_tells_what_has_become_of_its_jobs(url, tmp_path, request):
    place = (
        f"sqlite:///{tmp_path}/x.db" if url == "sqlite" else request.getfixturevalue("furnished")
    )
    with closing(App(place)) as app:

        @app.stage(policy="datasets-once")
        def half(item):
            return 1 / item

        halves = app.pipeline("halves", half)
        halves.enqueue_many([1, 2, 0])
        waiting = app.stats()
        assert isinstance(waiting, Stats)
        assert [(one.pipeline, one.ready) for one in waiting.depths] == [("halves", 3)]
        worked_off(app)
        ended = app.stats()
        (flow,) = ended.flows
        assert (flow.created, flow.succeeded, flow.failed, flow.attempts) == (3, 2, 1, 3)
        (death,) = ended.deaths
        assert (death.pipeline, death.stage, death.ever) == ("halves", "half", 1)
