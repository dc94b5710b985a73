"""The submissions service as the daemon speaks with it. Each call names the variant of whatever it meets.

No call is repeated here: that is the policy's business. A status that is not clearly the submitter's fault is the
infrastructure's, so no single 503 ends a run; and a 429 is a rate limit wherever it comes from, whose wait hint Perdure reads.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

import httpx2
import msgspec

from perdure import ConfigError

from .errors import Variant, VerifyError

T = TypeVar("T")
CALL_S_MAX = 30.0
BYTES_MAX = 64 * 1024 * 1024  # of an answer
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # no JSON, or endless


class Blame(NamedTuple):
    """Which variants it is when an endpoint is away, has no such thing, forbids it, or sends what cannot be used."""

    away: Variant
    missing: Variant
    forbidden: Variant
    unusable: Variant


_API = Blame(Variant.API_NETWORK, Variant.API_NOT_FOUND, Variant.API_NETWORK, Variant.API_PARSE)
_FILE = Blame(Variant.SERVICE_ERROR, Variant.MISSING, Variant.FORBIDDEN, Variant.SECURITY_VIOLATION)
_GAME = Blame(Variant.GAME_DOWNLOAD, Variant.BAD_VERSION, Variant.GAME_DOWNLOAD, Variant.EXTRACTION)
_MODS = Blame(*[Variant.MOD_INFO] * 4)


@dataclass
class Run:
    """A run as the service lists it. A # in its id would be taken for another verification."""

    run_id: Annotated[str, msgspec.Meta(pattern=r'^[ -"$-~]{1,40}\Z')]
    game: str
    category: str
    submitted_date: Annotated[datetime, msgspec.Meta(tz=True)]

    def __post_init__(self) -> None:
        if not 1970 < self.submitted_date.year < 9999:
            raise ValueError("its date is not of our time")


@dataclass
class Page:
    runs: list[dict[str, Any]]
    next: int | None


@dataclass
class Submission:
    player: str
    link: str


class Submissions:
    """A client of the service, for many threads."""

    def __init__(self, url: str, save_bytes_max: int) -> None:
        self._save_bytes_max = save_bytes_max
        # A connection that is kept may be closed by the other side just when a call is sent: each call makes its own.
        limits = httpx2.Limits(max_keepalive_connections=0)
        try:
            self._origin = urlsplit(url)[:2]
            self._client = httpx2.Client(base_url=url, limits=limits, timeout=CALL_S_MAX)
        except (ValueError, httpx2.InvalidURL) as wrong:
            raise ConfigError(f"service in the settings is no URL: {wrong}") from None
        self.close = self._client.close

    def page(
        self, game: str, category: str, since: datetime, number: int
    ) -> tuple[list[Run], list[str], int | None]:
        """A page of a category's runs since a moment, why each other entry is none, and the number of the next page."""
        pair = {"game": game, "category": category}
        told = self._json("/api/runs", _API, Page, **pair, since=since.isoformat(), page=number)
        runs, odd = [], []
        for one in told.runs:
            try:
                runs.append(msgspec.convert({**one, **pair, "run_id": one.get("id")}, Run))
            except msgspec.ValidationError as wrong:
                odd.append(f"{str(one)[:200]}: {wrong}")
        return runs, odd, told.next

    def run(self, run_id: str) -> Submission:
        told = self._json(f"/api/runs/{quote(run_id, safe='')}", _API, dict[str, Any])
        if not told.get("link"):
            raise VerifyError(Variant.NO_LINK, f"run {run_id} has no link to a save")
        try:
            return msgspec.convert(told, Submission)
        except msgspec.ValidationError as wrong:
            raise VerifyError(Variant.API_MISSING_FIELD, f"run {run_id}: {wrong}") from None

    def save(self, link: str) -> bytes:
        """The save behind a link, which must lead to a file of the service and be no larger than is allowed."""
        with suppress(ValueError, httpx2.InvalidURL):  # it is no link at all
            where = urlsplit(link)
            is_ours = where[:2] == self._origin and where.path.startswith("/files/")
            if is_ours and ".." not in unquote(where.path):
                return self._get(where.path, _FILE, bytes_max=self._save_bytes_max)
        raise VerifyError(Variant.SECURITY_VIOLATION, f"{link} leads elsewhere")

    def game(self, version: str) -> bytes:
        """The package of a version of the game, a zip file."""
        return self._get(f"/games/{version}.zip", _GAME)

    def mods(self, version: str) -> dict[str, str]:
        """The mods that are allowed with it, and their versions."""
        return self._json(f"/games/{version}/mods", _MODS, dict[str, str])

    def _json(self, path: str, blame: Blame, form: type[T], **query: Any) -> T:
        try:
            return msgspec.json.decode(self._get(path, blame, **query), type=form)
        except UNREADABLE as wrong:
            raise VerifyError(blame.unusable, f"{path[1:]} is not as agreed: {wrong}") from None

    def _get(self, path: str, blame: Blame, bytes_max: int = BYTES_MAX, **query: Any) -> bytes:
        content, what = b"", path.lstrip("/")  # a message with a path in it would lose it
        try:
            with self._client.stream("GET", path, params=query) as answer:
                answer.raise_for_status()
                for part in answer.iter_bytes():
                    content += part
                    if len(content) > bytes_max:
                        raise VerifyError(blame.unusable, f"{what} has over {bytes_max} bytes")
        except httpx2.HTTPStatusError as refused:
            status, missing = refused.response.status_code, blame.missing
            variants = {429: Variant.LIMITED, 403: blame.forbidden, 404: missing, 410: missing}
            variant = variants.get(status, blame.away)
            raise VerifyError(variant, f"{what} is answered with {status}") from refused
        except httpx2.HTTPError as wrong:
            raise VerifyError(blame.away, f"{what}: {type(wrong).__name__}: {wrong}") from wrong
        return content
