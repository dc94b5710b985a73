"""What a request may ask of a server: how large, how deep, how often, how much, and how many at once.

Always true: whoever is refused for size, rate or overload has had nothing of its body decoded. An owner's rate and open
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
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
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
FORMS_MAX = 20  # the same of the login page
OPEN_JOBS_PER_OWNER = 1_000_000
_PACE = timedelta(minutes=10)
_RETRY_S_MAX = 60

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
        self._making: Counter[str] = Counter()  # jobs, by owner
        self._made = asyncio.Event()

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """Do what blocks; in threads of the API's own, so that nothing else in this process waits for one."""
        return await to_thread.run_sync(partial(work, *given), limiter=self._threads)

    @contextmanager
    def answering(self, *, always: bool = False) -> Iterator[None]:
        """One of the requests that are answered at once, or, but for what is ``always`` answered, one too many."""
        if not always and self._inside["requests"] >= self._limits.requests_max:
            raise Refused("overloaded", retry_after="1")
        self._inside["requests"] += not always
        try:
            yield
        finally:
            self._inside["requests"] -= not always

    @contextmanager
    def reading(self, principal: Principal | None = None) -> Iterator[None]:
        """One of those whose body is read, which may take its time; apart for those of whom nobody knows who they are."""
        if principal is not None and is_operator(principal):
            yield
            return
        what, most = ("forms", FORMS_MAX) if principal is None else ("bodies", READING_MAX)
        if self._inside[what] >= most:
            raise Refused("overloaded", "too many bodies at once", retry_after="1")
        self._inside[what] += 1
        try:
            yield
        finally:
            self._inside[what] -= 1

    @contextmanager
    def waiting(self) -> Iterator[bool]:
        """Whether one more may wait for its job."""
        room = self._inside["waits"] < self._limits.waits_max
        self._inside["waits"] += room
        try:
            yield room
        finally:
            self._inside["waits"] -= room

    def stream(self, told: AsyncIterator[bytes], **answer: Any) -> StreamingResponse:
        """An answer that goes on for long, as one of so many."""
        if self._inside["streams"] >= self._limits.streams_max:
            raise Refused("overloaded", "too many streams at once", retry_after="5")
        return _CountedStream(self._inside, told, **answer)

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

    def __init__(self, inside: Counter[str], told: AsyncIterator[bytes], **answer: Any) -> None:
        super().__init__(told, **answer)
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._inside["streams"] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._inside["streams"] -= 1


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


def _is_utf8(parameters: str) -> bool:
    given = [
        value.strip(' "').lower()
        for name, _, value in (one.partition("=") for one in parameters.split(";"))
        if name.strip().lower() == "charset"
    ]
    return all(one in ("utf-8", "utf8") for one in given)
