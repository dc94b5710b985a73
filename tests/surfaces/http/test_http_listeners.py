"""What listeners cost the store besides the feed: whether their token is still good is asked once a beat, however many there are."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from starlette.requests import Request

from perdure.app.surface.access import create_token, revoke_token
from perdure.http import asgi
from perdure.model.access import AccessScope, Principal
from perdure.model.operations import Deed
from perdure.surfaces.http import events
from perdure.surfaces.http.asgi import HttpApi
from perdure.surfaces.http.limits import HttpLimits
from tests.surfaces.http.conftest import bearer
from tests.surfaces.http.raw import ask

DEED = Deed("test", "")
STREAMS = 30


@pytest.fixture
def looks(app, monkeypatch) -> list[str]:
    """The ids of tokens that the store was asked for."""
    asked: list[str] = []
    reader = type(app._session.opened.reader)
    right = reader.access_token
    monkeypatch.setattr(
        reader, "access_token", lambda self, id: asked.append(id) or right(self, id)
    )
    return asked


def request_of(text: str) -> Request:
    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {text}".encode())]
    return Request({"type": "http", "method": "GET", "path": "/api/events", "headers": headers,
                    "query_string": b"", "scheme": "http", "server": ("testserver", 80)})  # fmt: skip


def test_of_all_streams_of_a_token_the_store_is_asked_once_a_beat(app, looks, monkeypatch):
    texts, kept = {}, {}
    for owner in ("ann", "bob"):
        texts[owner], kept[owner] = create_token(
            app._session, name=owner, owner=owner, scopes=["read"], expires=None, deed=DEED
        )
    ann, bob = (Principal(one, one, frozenset({AccessScope.READ})) for one in texts)
    api = HttpApi(app._session, None, ("testserver",), HttpLimits())

    async def still(who: Principal, count: int = STREAMS) -> set[bool]:
        asked = (api._still_is(request_of(texts[who.owner]), who) for _ in range(count))
        return set(await asyncio.gather(*asked))

    async def play() -> None:
        monkeypatch.setattr(events, "BEAT_S", 1e12)
        assert await still(ann) == {True}
        assert looks == [kept["ann"].id]
        assert await still(bob) == {True}
        assert looks == [kept["ann"].id, kept["bob"].id]
        assert not await api._still_is(request_of(texts["bob"]), ann)
        revoke_token(app._session, kept["ann"].id, DEED)
        monkeypatch.setattr(events, "BEAT_S", 1e-9)
        assert await still(ann) == {False}
        assert await still(bob, 1) == {True}

    asyncio.run(play())


def test_a_login_of_somebody_elses_is_asked_for_every_stream(app, monkeypatch):
    """Nobody but it knows what its answer depends on."""
    monkeypatch.setattr(events, "BEAT_S", 1e12)
    asked = []
    ann = Principal("ann", "ann", frozenset({AccessScope.READ}))

    async def principal(request: Request) -> Principal:
        asked.append(request)
        return ann

    api = HttpApi(app._session, principal, ("testserver",), HttpLimits())

    async def play() -> None:
        await asyncio.gather(*(api._still_is(request_of("x"), ann) for _ in range(3)))

    asyncio.run(play())
    assert len(asked) == 3


def test_streams_that_beat_together_cost_no_more_looks_than_there_were_beats(
    app, looks, monkeypatch
):
    monkeypatch.setattr(events, "BEAT_S", 0.2)
    api, token = asgi(app, hosts=("testserver",)), bearer(app, "read")

    async def play() -> tuple[int, int]:
        async with AsyncExitStack() as stack:
            heard = [
                await stack.enter_async_context(ask(api, "GET", "/api/events", token))
                for _ in range(STREAMS)
            ]
            for one in heard:
                assert await one.status() == 200
                assert await one.piece() == b": listening\n\n"
            looks.clear()
            begun = events.beat_now()
            for one in heard:
                for _ in range(2):
                    assert await one.piece() == b": beat\n\n"
            return len(looks), events.beat_now() - begun + 1

    taken, beats = asyncio.run(play())
    assert taken <= beats
