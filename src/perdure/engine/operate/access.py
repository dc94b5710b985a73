"""Access tokens: how one is made, and whom a text speaks for.

A token is a prefix, its id and 256 random bits. Only the SHA-256 of those bits is kept, so what is stored opens nothing,
and the text is shown once. Known and unknown ids cost the same: one read, and one comparison in constant time.
"""

import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from perdure.engine.ids import Ids
from perdure.engine.operate.single_jobs import clean_deed
from perdure.engine.stages import check_name
from perdure.model.access import AccessScope, AccessToken, NewAccessToken, Principal
from perdure.model.errors import CallerError, UnknownName
from perdure.model.limits import DELAY_S_MAX
from perdure.model.operations import Deed
from perdure.ports import Control, Reader
from perdure.rules.field_checks import number

SECRET_BYTES = 32
_FORM = re.compile("perdure_(?P<id>[0-9a-f]{32})_(?P<secret>[A-Za-z0-9_-]{43})")
_NO_HASH = "0" * 64  # what is compared with where there is no token of that id
_WIDE = {AccessScope.ADMIN, AccessScope.READ_ALL}


def create_token(
    reader: Reader,
    control: Control,
    ids: Ids,
    *,
    name: str,
    owner: str = "",
    scopes: Iterable[str],
    expires_s: float | None = None,
    deed: Deed,
) -> tuple[str, AccessToken]:
    """Keep a new token; its text, which nobody can ask for again, and what is kept of it."""
    allowed = tuple(dict.fromkeys(_scope(one) for one in scopes))
    check_name("name", name)
    if owner:
        check_name("owner", owner)
    if not allowed:
        raise CallerError(f"a token without a scope opens nothing; name one of {_names()}")
    if not owner and not _WIDE & set(allowed):
        raise CallerError(
            f"a token with {', '.join(allowed)} reaches its owner's jobs, and this one has no owner; name one"
        )
    expires_at = None
    if expires_s is not None:
        number("expires_s", expires_s, 1.0, DELAY_S_MAX)
        expires_at = reader.now() + timedelta(seconds=expires_s)
    id, secret = ids.next(), secrets.token_urlsafe(SECRET_BYTES)
    new = NewAccessToken(id, hash_of(secret), name, owner, allowed, expires_at)
    kept = control.add_access_token(new, clean_deed(deed))
    return f"perdure_{UUID(id).hex}_{secret}", kept


def revoke_token(reader: Reader, control: Control, id: str, deed: Deed) -> None:
    """Let a token open nothing any more, in every process, from now on."""
    known = reader.access_token(id)
    if known is None:
        raise UnknownName(f"no token {id!r}; see: perdure token list")
    if not control.revoke_access_token(id, clean_deed(deed)):
        raise CallerError(f"token {id} was revoked before")


def principal_of(reader: Reader, text: str) -> Principal | None:
    """Whom a token speaks for; None for one that is not known, is revoked or has expired."""
    kept = token_of(reader, text)
    return None if kept is None else principal_of_token(kept)


def token_of(reader: Reader, text: str) -> AccessToken | None:
    """What is kept of a token that is good."""
    found = _FORM.fullmatch(text)
    return None if found is None else row_opened(reader, found["id"], found["secret"])


def principal_of_token(kept: AccessToken) -> Principal:
    """Whom a kept token speaks for."""
    return Principal(kept.name, kept.owner, frozenset(kept.scopes))


def row_opened(reader: Reader, id_hex: str, secret: str) -> AccessToken | None:
    """The row of this id, if it is good and the secret is its own."""
    kept = reader.access_token(str(UUID(id_hex)))
    right = hmac.compare_digest(hash_of(secret), _NO_HASH if kept is None else kept.hash)
    return kept if kept is not None and right and kept.is_good(reader.now()) else None


def hash_of(secret: str) -> str:
    """What is kept of a secret."""
    return sha256(secret.encode()).hexdigest()


def _scope(typed: str) -> AccessScope:
    try:
        return AccessScope(typed)
    except ValueError:
        raise CallerError(f"scope is {typed!r}; it must be one of {_names()}") from None


def _names() -> str:
    return ", ".join(AccessScope)
