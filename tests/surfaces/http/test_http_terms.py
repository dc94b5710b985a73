"""When a job made over HTTP may run, and until when; and that what is heard of it has the form that the document says."""

import asyncio
from datetime import datetime, timedelta

import msgspec

from perdure.app.surface.serving import pipeline_named
from perdure.surfaces.http.events import EventShown, stream
from tests.surfaces.http.conftest import on_both_stores
from tests.surfaces.http.test_http_events import listening, until

ASKED = {"item": {"text": "x"}, "run_at": "2999-01-01T01:00:00+01:00", "deadline_s": 3_600}


@on_both_stores
def test_a_job_runs_not_before_its_moment_and_has_its_deadline(client):
    ann = client("submit", "read")
    ids = [ann.post("/api/jobs", json={"pipeline": "shouting", **ASKED}).json()["job"]["id"]]
    batch = {"pipeline": "shouting", "jobs": [ASKED | {"priority": 7}]}
    ids.append(ann.post("/api/jobs/batch", json=batch).json()["jobs"][0]["id"])
    jobs = [ann.get(f"/api/jobs/{id}").json()["job"] for id in ids]
    assert [(one["view"], one["next_run_at"], one["deadline_at"]) for one in jobs] == [
        ("scheduled", "2999-01-01T00:00:00Z", "2999-01-01T01:00:00Z")
    ] * 2
    assert [one["priority"] for one in jobs] == [0, 7]


def test_what_is_heard_has_every_field_of_its_document_and_no_other(app):
    async def play() -> list[dict[str, object]]:
        told = stream(app._session, "ann", None)
        await listening(told)
        pipeline_named(app._session, "shouting").enqueue({"text": "x"}, owner="ann")
        found = await until(told, 1)
        await told.aclose()
        return [data for _, _, data in found]

    for data in asyncio.run(play()):
        shown = msgspec.convert(data, EventShown)
        assert set(data) == set(EventShown.__struct_fields__)
        assert shown.kind == "job_accepted"
        assert datetime.fromisoformat(shown.at).utcoffset() == timedelta(0)
