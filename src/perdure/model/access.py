"""Who may do what over HTTP: access tokens, their scopes, and the principal that a request speaks for."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class AccessScope(StrEnum):
    """What a token allows. The first three reach the own jobs and runs of its owner only."""

    SUBMIT = "submit"  # make jobs and runs
    READ = "read"  # see them
    OPERATE = "operate"  # cancel, retry, run now, pause, re-drive, discard
    READ_ALL = "read_all"  # see everybody's, and gates, queues, workers and the audit log
    ADMIN = "admin"  # do everything to everybody's


class Principal(Struct, frozen=True):
    """Whom a request speaks for. ``owner`` is whose objects it reaches; None reaches all, "" what is nobody's."""

    name: str
    owner: str | None
    scopes: frozenset[AccessScope]


class NewAccessToken(Struct, frozen=True):
    """An access token to be kept; its secret is not, only a hash of it."""

    id: str
    hash: str
    name: str
    owner: str
    scopes: tuple[AccessScope, ...]
    expires_at: datetime | None = None


class AccessToken(Struct, frozen=True):
    """A kept access token. One without an owner is an operator's."""

    id: str
    hash: str
    name: str
    owner: str
    scopes: tuple[AccessScope, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def is_good(self, now: datetime) -> bool:
        """Whether it opens anything now."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
