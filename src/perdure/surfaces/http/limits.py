"""What a request may ask of a server: how large, how deep, how often, how much, and how many at once.

Always true: whoever is refused for size, depth, rate or overload has had nothing of its body decoded. An owner's rate and open
jobs are counted in the store: all servers share them, and a restart forgets none. How many requests are answered at
once is a number of this process, and so are bodies that come in, waits and streams, which are counted apart, since they
take no thread. Health is always answered. An operator (an admin, or whoever has no owner) has no rate and no limit on jobs:
it must get in while an owner floods us.

Open jobs never exceed their limit by what one server lets in: what it is just making counts as open from before the look
until after the commit. Servers do not see each other's jobs in the making, and each makes at most ``MAKING_MAX`` of one
owner at once, the size of the largest request. So n servers may exceed the limit by n - 1 such requests.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from perdure.app.session.session import Session
from perdure.app.surface.serving import owner_rate
from perdure.model.access import AccessScope, Principal
from perdure.model.errors import ConfigError
from perdure.model.limits import DEPTH_MAX
from perdure.surfaces.http.endpoints import ITEMS_MAX, Endpoint
from perdure.surfaces.http.problems import Refused

BODY_BYTES_MAX = 8 * 1024 * 1024
BODY_S_MAX = 30.0
NO_BODY = b"{}"
HEADERS_MAX = 100
HEADER_BYTES_MAX = 32 * 1024  # of all of them, and of the address
THREADS = 32  # that answer; more of them would wait for the store's connections
MAKING_MAX = ITEMS_MAX
READING_MAX = 200  # bodies that come in at once
VALUES_MAX = (
    500_000  # of a body; a list that is empty takes fifty bytes of memory for two of its own
)
BODY_DEPTH_MAX = DEPTH_MAX + 4  # of an item, in a job, in a list, in a body; a parser recurses
_NO_BRACKETS = bytes(one for one in range(256) if one not in b"[]{}")
FORMS_MAX = 20  # the same of the login page
OPEN_JOBS_PER_OWNER = 1_000_000
_PACE = timedelta(minutes=10)
_RETRY_S_MAX = 60
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)  # one without an end goes to the end: linear

T = TypeVar("T")


class HttpLimits(Struct, frozen=True, kw_only=True):
    """What a server allows; None is no limit. Several servers of one store are given the same."""

    rate_per_owner: str | None = None
    open_jobs_per_owner: int | None = OPEN_JOBS_PER_OWNER
    requests_max: int = 100
    waits_max: int = 1_000
    streams_max: int = 1_000

    def __post_init__(self) -> None:
        counts = ("open_jobs_per_owner", "requests_max", "waits_max", "streams_max")
        for name in counts:
            value = getattr(self, name)
            none = value is None and name == counts[0]
            if not none and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} is {value!r}; it must be a whole number, 1 or more")


class Door:
    """Who is let in, of those whose request is right, and how many of them at once; on one event loop."""

    def __init__(self, session: Session, limits: HttpLimits) -> None:
        self._session = session
        self._limits = limits
        self._rate = owner_rate(limits.rate_per_owner)
        self._threads = anyio.CapacityLimiter(THREADS)
        self._inside: Counter[str] = Counter()
        self._of: Counter[tuple[str, str]] = Counter()  # the same, by owner
        self._making: Counter[str] = Counter()  # jobs, by owner
        self._made = asyncio.Event()
        self._lines: dict[str, anyio.CapacityLimiter] = {}  # by owner

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """Do what blocks; in threads of the API's own, so that nothing else in this process waits for one."""
        return await to_thread.run_sync(partial(work, *given), limiter=self._threads)

    @contextmanager
    def answering(self, *, always: bool = False) -> Iterator[None]:
        """Count a request in, or refuse it when too many are inside; what is ``always`` answered is neither."""
        if not always and self._inside["requests"] >= self._limits.requests_max:
            raise Refused("overloaded", retry_after="1")
        self._inside["requests"] += not always
        try:
            yield
        finally:
            self._inside["requests"] -= not always

    @asynccontextmanager
    async def serving(self, principal: Principal, *, always: bool) -> AsyncIterator[None]:
        """As `answering`, of one who is known: an owner has at most half of the threads, and its other requests wait in a line of its own."""
        if always or is_operator(principal):
            yield
            return
        half = max(1, THREADS // 2)
        line = self._lines.setdefault(principal.owner, anyio.CapacityLimiter(half))
        if line.statistics().tasks_waiting >= self._limits.requests_max:
            raise Refused("overloaded", "too many requests of this owner at once", retry_after="1")
        try:
            async with line:
                with self.answering():
                    yield
        finally:
            now = line.statistics()
            if not now.borrowed_tokens and not now.tasks_waiting:
                self._lines.pop(principal.owner, None)

    @contextmanager
    def reading(self, principal: Principal | None = None) -> Iterator[None]:
        """One of those whose body is read, which may take its time; apart for those of whom nobody knows who they are."""
        if principal is not None and is_operator(principal):
            yield
            return
        what, most = ("forms", FORMS_MAX) if principal is None else ("bodies", READING_MAX)
        if not self._has_place(what, most, principal):
            raise Refused("overloaded", "too many bodies at once", retry_after="1")
        with self._inside_as(what, principal):
            yield

    def may_wait(self, principal: Principal) -> bool:
        """Whether there is room for one more that waits for its job."""
        return self._has_place("waits", self._limits.waits_max, principal)

    @contextmanager
    def waiting(self, principal: Principal) -> Iterator[bool]:
        """Whether one more may wait for its job."""
        if not self.may_wait(principal):
            yield False
            return
        with self._inside_as("waits", principal):
            yield True

    def stream(
        self, principal: Principal, told: AsyncIterator[bytes], **answer: Any
    ) -> StreamingResponse:
        """An answer that goes on for long, as one of so many."""
        if not self._has_place("streams", self._limits.streams_max, principal):
            raise Refused("overloaded", "too many streams at once", retry_after="5")
        return _CountedStream(self._inside_as("streams", principal), told, **answer)

    def _has_place(self, what: str, most: int, principal: Principal | None) -> bool:
        """Whether one more is not too many; one owner takes at most half of the places, the others find the rest."""
        own = 0 if principal is None or is_operator(principal) else self._of[what, principal.owner]
        return self._inside[what] < most and own < (most + 1) // 2

    @contextmanager
    def _inside_as(self, what: str, principal: Principal | None) -> Iterator[None]:
        owner = "" if principal is None else principal.owner
        self._inside[what] += 1
        self._of[what, owner] += 1
        try:
            yield
        finally:
            self._inside[what] -= 1
            self._of[what, owner] -= 1
            self._of += Counter()  # forgets who has none

    async def check_rate(self, principal: Principal) -> None:
        """Count a request, or refuse it until its owner has fewer."""
        if self._rate is None or is_operator(principal):
            return
        take = partial(self._session.opened.control.take_request, principal.owner)
        burst, every_s = self._rate
        wait_s = await self.in_thread(partial(take, burst=burst, every_s=every_s))
        if wait_s:
            wait = str(max(1, math.ceil(wait_s)))
            told = f"this owner may send {self._limits.rate_per_owner}; come back in {wait} s"
            raise Refused("rate_limited", told, retry_after=wait)

    @asynccontextmanager
    async def making(self, principal: Principal, jobs: int) -> AsyncIterator[None]:
        """While an owner's request makes so many jobs; or it is refused, and none is made."""
        most, owner = self._limits.open_jobs_per_owner, principal.owner
        if not jobs or most is None or is_operator(principal):
            yield
            return
        if jobs > most:
            raise Refused("too_large", f"an owner may have {most:,} open jobs; send fewer at once")
        while self._making[owner] and self._making[owner] + jobs > MAKING_MAX:
            self._made.clear()
            await self._made.wait()
        self._making[owner] += jobs
        try:
            await self.in_thread(self._check_room, owner, self._making[owner], most)
            yield
        finally:
            self._making[owner] -= jobs
            self._making += Counter()  # forgets who makes none
            self._made.set()

    def _check_room(self, owner: str, making: int, most: int) -> None:
        over = self._session.opened.reader.open_jobs(owner) + making - most
        if over > 0:
            told = f"this owner may have {most:,} open jobs; wait until some have ended"
            raise Refused("too_many_open_jobs", told, retry_after=str(self._until_ended_s(over)))

    def _until_ended_s(self, jobs: int) -> int:
        """When so many will have ended, at the pace of the last minutes; a minute at most."""
        reader = self._session.opened.reader
        since = reader.now() - _PACE
        ended = sum(
            one.succeeded + one.failed + one.cancelled
            for one in reader.flows(minutes=True)
            if one.at is not None and one.at >= since
        )
        wait_s = math.ceil(jobs * _PACE.total_seconds() / ended) if ended else _RETRY_S_MAX
        return max(1, min(wait_s, _RETRY_S_MAX))


class _CountedStream(StreamingResponse):
    """A stream that counts from its first byte until its end, however it ends."""

    def __init__(
        self, counted: AbstractContextManager[None], told: AsyncIterator[bytes], **answer: Any
    ) -> None:
        super().__init__(told, **answer)
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted:
            await super().__call__(scope, receive, send)


def is_operator(principal: Principal) -> bool:
    """Whether it has no owner's limits."""
    return not principal.owner or principal.may(AccessScope.ADMIN)


def check_headers(request: Request) -> None:
    """Refuse more headers, or longer ones, than anybody needs."""
    headers = request.headers.raw
    size = len(request.scope["query_string"]) + len(request.scope["path"])
    size += sum(len(name) + len(value) for name, value in headers)
    if len(headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
        told = f"a request may have {HEADERS_MAX} headers and {HEADER_BYTES_MAX:,} bytes of them"
        raise Refused("headers_too_large", told)


async def read_body(request: Request, endpoint: Endpoint) -> bytes:
    """The body, if it is of the right type, small enough, and here in time."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    if endpoint.may_lack_body and not kind and not await take_bytes(request, BODY_BYTES_MAX):
        return NO_BODY
    if kind.strip().lower() != endpoint.takes or not _is_utf8(parameters):
        raise Refused("unsupported_media_type", f"the body must be {endpoint.takes}, in UTF-8")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused("unsupported_media_type", "the body must not be compressed")
    taken = await take_bytes(request, BODY_BYTES_MAX)
    if endpoint.lines and taken.count(b"\n") > ITEMS_MAX:
        raise Refused("too_large", f"a body may have {ITEMS_MAX:,} lines; send the rest in others")
    if _marks(taken) > VALUES_MAX and _marks(_TEXT.sub(b"", taken)) > VALUES_MAX:
        raise Refused(
            "too_large", f"a body may have {VALUES_MAX:,} values; send the rest in others"
        )
    if _is_too_deep(taken):
        raise Refused(
            "payload_refused", f"a body may be nested {BODY_DEPTH_MAX} levels deep; flatten it"
        )
    return NO_BODY if endpoint.may_lack_body and not taken else taken


async def take_bytes(request: Request, most: int) -> bytes:
    """The body, whatever it is, if it is small enough, and here in time."""
    too_large = Refused("too_large", f"a body may have {most:,} bytes")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and (len(told) > 15 or int(told) > most):
        raise too_large
    taken = bytearray()
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for chunk in request.stream():
                taken += chunk
                if len(taken) > most:
                    raise too_large
    except TimeoutError:
        raise Refused("too_slow", f"the body did not come within {BODY_S_MAX:g} s") from None
    except ClientDisconnect:
        raise Refused("bad_request", "the body was cut off") from None
    return bytes(taken)


def _marks(body: bytes) -> int:
    """What stands before or between values; texts may have the same characters."""
    return sum(body.count(mark) for mark in (b",", b"[", b"{"))


def _is_too_deep(body: bytes) -> bool:
    """Whether lists and objects are nested deeper than any body needs, as far as they are open; no value is made for it."""
    if body.count(b"[") + body.count(b"{") <= BODY_DEPTH_MAX:
        return False
    depth = 0
    for mark in _TEXT.sub(b"", body).translate(None, _NO_BRACKETS):
        depth += 1 if mark in b"[{" else -1
        if depth > BODY_DEPTH_MAX:
            return True
    return False


def _is_utf8(parameters: str) -> bool:
    given = [
        value.strip(' "').lower()
        for name, _, value in (one.partition("=") for one in parameters.split(";"))
        if name.strip().lower() == "charset"
    ]
    return all(one in ("utf-8", "utf8") for one in given)
