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
    """Whom a request speaks for: ``owner`` is whose jobs it makes, and reaches unless its scopes reach further."""

    name: str
    owner: str
    scopes: frozenset[AccessScope]

    def may(self, scope: AccessScope) -> bool:
        """Whether a scope is among its own; an admin may do everything, a viewer across owners also sees its own.

        What is nobody's is the operator's, so without an owner the narrow scopes open nothing.
        """
        opened_by = {AccessScope.ADMIN}
        if scope in (AccessScope.READ, AccessScope.READ_ALL):
            opened_by.add(AccessScope.READ_ALL)
        if self.owner:
            opened_by.add(scope)
        return bool(opened_by & self.scopes)

    @property
    def sees(self) -> str | None:
        """Whose objects it sees, for the WHERE of a read; None is everybody's."""
        return None if self.may(AccessScope.READ_ALL) else self.owner

    @property
    def acts_on(self) -> str | None:
        """Whose objects it may change, for the WHERE of a write; None is everybody's."""
        return None if self.may(AccessScope.ADMIN) else self.owner


class Login(Struct, frozen=True):
    """A person who speaks by a browser's cookie; what is written by it must bring ``csrf`` besides."""

    id: str
    principal: Principal
    expires_at: datetime
    csrf: str


class NewAccessToken(Struct, frozen=True):
    """An access token to be kept; its secret is not, only a hash of it. One without scopes is a login."""

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
