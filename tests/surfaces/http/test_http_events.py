"""Server-sent events: heard by their owner, resumed where they were cut off, from one reader however many listen."""

import asyncio

import msgspec
import pytest

from perdure.app.surface.access import create_token, revoke_token
from perdure.app.surface.serving import Listener, pipeline_named
from perdure.http import asgi
from perdure.model.operations import Deed
from perdure.surfaces.http import events
from perdure.surfaces.http.events import stream
from tests.surfaces.http.conftest import change_row, problem

DEED = Deed("test", "")


def heard(told: bytes) -> list[tuple[str | None, str, dict]]:
    """The events of a stretch of the stream: their ids, kinds and what they say."""
    found = []
    for block in told.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            found.append((fields.get("id"), fields["event"], msgspec.json.decode(fields["data"])))
    return found


async def until(told, count: int) -> list[tuple[str | None, str, dict]]:
    found: list[tuple[str | None, str, dict]] = []
    async with asyncio.timeout(30):
        async for piece in told:
            found += heard(piece)
            if len(found) >= count:
                return found
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
        found = await until(told, 3)
        await told.aclose()
        assert [one[2]["id"] for one in found] == ids

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


def test_a_stream_ends_when_its_listener_may_hear_no_more(app, monkeypatch):
    monkeypatch.setattr(events, "BEAT_S", 0.01)
    answers = [True, True, False]

    async def may_hear() -> bool:
        return answers.pop(0)

    async def play() -> list[bytes]:
        async with asyncio.timeout(30):
            return [one async for one in stream(app._session, "ann", None, may_hear)]

    assert set(asyncio.run(play())) == {b": listening\n\n", b": beat\n\n"}
    assert answers == []


@pytest.mark.parametrize("ended", ["revoked", "narrowed"])
def test_a_stream_ends_with_the_token_that_opened_it(app, monkeypatch, ended):
    monkeypatch.setattr(events, "BEAT_S", 0.01)
    text, kept = create_token(
        app._session, name="web", owner="ann", scopes=["read"], expires=None, deed=DEED
    )
    api = asgi(app, hosts=("testserver",))
    pieces: list[bytes] = []

    async def send(message) -> None:
        pieces.append(message.get("body", b""))
        if len(pieces) != 3:
            return
        if ended == "revoked":
            revoke_token(app._session, kept.id, DEED)
        else:
            narrowed = "UPDATE perdure_access_tokens SET scopes = 'submit' WHERE id = :id"
            change_row(app._session, narrowed, id=kept.id)

    async def receive():
        await asyncio.sleep(3_600)

    async def play() -> None:
        headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {text}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/api/events", "headers": headers,
                 "query_string": b"", "root_path": "", "scheme": "http", "server": ("testserver", 80)}  # fmt: skip
        async with asyncio.timeout(30):
            await api(scope, receive, send)

    asyncio.run(play())
    assert b": listening\n\n" in pieces


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)  # by a cursor of its own
def test_a_cursor_that_the_feed_no_longer_keeps_gets_a_reset_and_goes_on_from_there(app):
    """What was pruned is as what never was: `changes` says so of both, and its own tests prune."""
    pipe = pipeline_named(app._session, "shouting")

    async def play() -> None:
        told = stream(app._session, "ann", "s1-999999-0")
        ((cursor, kind, data),) = await until(told, 1)
        assert (kind, data) == ("reset", {})
        id = pipe.enqueue({"text": "x"}, owner="ann").id
        assert [one[2]["id"] for one in await until(told, 1)] == [id]
        await told.aclose()
        again = stream(app._session, "ann", cursor)  # the id of the reset is good to go on from
        await listening(again)
        assert [one[2]["id"] for one in await until(again, 1)] == [id]
        await again.aclose()

    asyncio.run(play())


async def hear_of_both(app) -> set[str]:
    """Whose jobs Bob hears of, who goes on from a cursor of Ann's, after each of them has made one."""
    pipe = pipeline_named(app._session, "shouting")
    anns = app._session.opened.reader.changes().cursor
    told = stream(app._session, "bob", anns)
    await listening(told)
    made = {pipe.enqueue({"text": "x"}, owner=who).id: who for who in ("ann", "bob")}
    heard: set[str] = set()
    while "bob" not in heard:
        heard |= {made[one[2]["id"]] for one in await until(told, 1)}
    await told.aclose()
    return heard


def test_an_entry_of_anothers_is_not_even_encoded(app, monkeypatch):
    encoded: list[str] = []
    right = events._shown
    monkeypatch.setattr(
        events, "_shown", lambda session, one: encoded.append(one.owner) or right(session, one)
    )
    assert asyncio.run(hear_of_both(app)) == {"bob"}
    assert set(encoded) == {"bob"}


def test_a_feed_that_does_not_look_whose_an_entry_is_would_be_noticed(app, monkeypatch):
    """The broken twin."""
    monkeypatch.setattr(Listener, "_may_see", lambda self, entry: True)
    assert asyncio.run(hear_of_both(app)) == {"ann", "bob"}
