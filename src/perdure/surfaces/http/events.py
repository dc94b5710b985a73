"""What happens, as it happens: server-sent events from the store's change feed.

One reader in this process serves all who listen, and each hears of its own owner only: an entry is filtered before it is
encoded. Every event has the cursor after it as its id, so that a client that was cut off goes on with ``Last-Event-ID``.
A cursor that the feed no longer keeps gets one ``reset`` event: read the lists anew, and go on from its id.
Every 15 seconds it is asked again whether the listener may still hear: a stream ends with the token or login that opened it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import Annotated, Any

import msgspec
from starlette.concurrency import run_in_threadpool

from perdure.app.session.session import Session
from perdure.app.surface.serving import Listener
from perdure.model.access import AccessScope
from perdure.model.changes import Change, ChangePage
from perdure.model.errors import CursorTooOld, PerdureError
from perdure.surfaces.http.endpoints import Endpoint, HttpAnswer, HttpCall
from perdure.surfaces.views import under_names

BEAT_S = 15.0  # a line that says nothing, so that no one in between takes the stream for dead

_encode = msgspec.json.Encoder().encode


class EventShown(msgspec.Struct, frozen=True):
    """An event on the wire. It says what a thing has become; what it is now, the other endpoints say."""

    kind: str
    at: str
    id: str
    pipeline: str
    stage: str
    state: str
    status: str | None


class EventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to go on, for who cannot send ``Last-Event-ID``."""

    after: Annotated[str, msgspec.Meta(max_length=200)] | None = None


def hear_events(call: HttpCall) -> HttpAnswer:
    """Hear what happens to one's own jobs and runs, as it happens, as server-sent events."""
    after = call.headers.get("last-event-id") or call.query.after
    with suppress(CursorTooOld):  # that is the stream's to tell; one that is none is refused here
        call.session.opened.reader.changes(after, limit=1)
    return HttpAnswer(after)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/events",
        hear_events,
        AccessScope.READ,
        EventShown,
        query=EventQuery,
        hears=True,
    ),
)


async def _always() -> bool:
    return True


async def stream(
    session: Session,
    owner: str | None,
    after: str | None,
    may_hear: Callable[[], Awaitable[bool]] = _always,
    in_thread: Callable[..., Awaitable[Any]] = run_in_threadpool,
) -> AsyncIterator[bytes]:
    """The events of one owner, or of all, from now on or after a cursor, until whoever listens leaves or may hear no more."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(news.set)

    listening, first = _listen(session, owner, wake), b": listening\n\n"
    try:
        opened = listening(after)
        listener = await in_thread(opened.__enter__)
    except CursorTooOld:
        opened = listening(None)
        listener = await in_thread(opened.__enter__)
        first = _event("reset", listener.cursor, b"{}") + first
    try:
        yield first
        asked = loop.time()
        while True:
            if loop.time() - asked >= BEAT_S:
                if not await may_hear():
                    return
                asked = loop.time()
            news.clear()
            try:
                page = listener.take()
            except PerdureError:
                yield b"event: reset\ndata: {}\n\n"
                return
            if page.entries:
                yield _page(session, page)
                continue
            try:
                async with asyncio.timeout_at(asked + BEAT_S):
                    await news.wait()
            except TimeoutError:
                yield b": beat\n\n"
    finally:
        await asyncio.shield(in_thread(opened.__exit__, None, None, None))


def _listen(
    session: Session, owner: str | None, wake: Callable[[], None]
) -> Callable[[str | None], AbstractContextManager[Listener]]:
    return lambda after: session.feed.listening(owner, after, wake)


def _page(session: Session, page: ChangePage) -> bytes:
    """The cursor stands with the last event: who is cut off before it hears the whole page again."""
    last = len(page.entries) - 1
    return b"".join(
        _event(one.kind.value, page.cursor if n == last else None, _encode(_shown(session, one)))
        for n, one in enumerate(page.entries)
    )


def _event(kind: str, cursor: str | None, data: bytes) -> bytes:
    id = b"" if cursor is None else b"id: %s\n" % cursor.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (id, kind.encode(), data)


def _shown(session: Session, one: Change) -> Any:
    at = one.changed_at.isoformat().replace("+00:00", "Z")
    shown = EventShown(one.kind.value, at, one.id, one.pipeline, one.stage, one.state, one.status)
    return under_names(shown, session.aliases_of(one.pipeline))
