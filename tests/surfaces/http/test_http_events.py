"""Server-sent events: heard by their owner, resumed where they were cut off, from one reader however many listen."""

import asyncio

import msgspec

from perdure.app.surface.serving import pipeline_named
from perdure.surfaces.http.events import stream
from tests.surfaces.http.conftest import problem


def heard(told: bytes) -> list[tuple[str | None, str, dict]]:
    """The events of a stretch of the stream: their ids, kinds and what they say."""
    found = []
    for block in told.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            found.append((fields.get("id"), fields["event"], msgspec.json.decode(fields["data"])))
    return found


async def until(told, count: int) -> list[tuple[str | None, str, dict]]:
    events: list[tuple[str | None, str, dict]] = []
    async with asyncio.timeout(30):
        async for piece in told:
            events += heard(piece)
            if len(events) >= count:
                return events
    raise AssertionError("the stream has ended")


async def listening(told) -> None:
    assert await anext(told) == b": listening\n\n"


def test_an_owner_hears_of_its_own_jobs_and_goes_on_where_it_was_cut_off(app):
    pipe = pipeline_named(app._session, "shouting")

    async def play() -> None:
        told = stream(app._session, "ann", None)
        await listening(told)
        mine = [
            pipe.enqueue({"text": str(n)}, owner=who).id
            for n, who in enumerate(("ann", "bob", "ann"))
        ]
        first = await until(told, 1)
        assert {one[2]["id"] for one in first} <= {mine[0], mine[2]}
        cursor = first[-1][0]
        await told.aclose()
        later = pipe.enqueue({"text": "later"}, owner="ann").id
        again = stream(app._session, "ann", cursor)
        await listening(again)
        rest = await until(again, 3 - len(first))
        await again.aclose()
        assert [one[2]["id"] for one in first + rest] == [mine[0], mine[2], later]
        assert {one[1] for one in rest} == {"job_accepted"}

    asyncio.run(play())


def test_an_operator_hears_of_everybodys(app):
    pipe = pipeline_named(app._session, "shouting")

    async def play() -> None:
        told = stream(app._session, None, None)
        await listening(told)
        ids = [pipe.enqueue({"text": "x"}, owner=who).id for who in ("ann", "bob", "")]
        events = await until(told, 3)
        await told.aclose()
        assert [one[2]["id"] for one in events] == ids

    asyncio.run(play())


def test_however_many_listen_the_store_is_read_as_often(app, monkeypatch):
    reader = app._session.opened.reader
    right, reads = type(reader).changes, []

    def counted(self, *args, **kwargs):
        reads.append(args)
        return right(self, *args, **kwargs)

    monkeypatch.setattr(type(reader), "changes", counted)
    pipe = pipeline_named(app._session, "shouting")

    async def play(count: int) -> int:
        streams = [stream(app._session, "ann", None) for _ in range(count)]
        await asyncio.gather(*map(listening, streams))
        pipe.enqueue({"text": "so that all have caught up"}, owner="ann")
        await asyncio.gather(*(until(one, 1) for one in streams))
        reads.clear()
        pipe.enqueue({"text": "x"}, owner="ann")
        await asyncio.gather(*(until(one, 1) for one in streams))
        taken = len(reads)
        await asyncio.gather(*(one.aclose() for one in streams))
        return taken

    alone, many = asyncio.run(play(1)), asyncio.run(play(50))
    assert many <= alone + 10 < 50


def test_a_cursor_that_is_none_is_refused(client):
    assert problem(client("read").get("/api/events?after=nonsense")) == "caller_error"


def test_who_has_no_scope_hears_nothing(client):
    assert problem(client("submit").get("/api/events")) == "forbidden"
    assert problem(client().get("/api/events")) == "unauthenticated"
