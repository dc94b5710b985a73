"""Logins: what a browser holds in a cookie, in place of the token that it was made with.

A login is a row among the access tokens, without scopes of its own. It speaks for its token, whose id its text names; its hash
is of its secret and that id together, so that a login cannot be made to speak for another token, and is no token itself. Both
rows are read each time: a login opens nothing once it is ended or its token is revoked, in every process.
"""

import hmac
import re
import secrets
from datetime import timedelta
from uuid import UUID

from perdure.engine.ids import Ids
from perdure.engine.operate.access import (
    SECRET_BYTES,
    hash_of,
    principal_of_token,
    row_opened,
    token_of,
)
from perdure.model.access import Login, NewAccessToken
from perdure.model.operations import Deed
from perdure.ports import Control, Reader

LOGIN_S_MAX = 12 * 3_600.0  # a working day

_FORM = re.compile(r"(?P<id>[0-9a-f]{32})\.(?P<token>[0-9a-f]{32})\.(?P<secret>[A-Za-z0-9_-]{43})")


def log_in(reader: Reader, control: Control, ids: Ids, token_text: str) -> str | None:
    """The text of a new login by a token; None where the token is not good."""
    token = token_of(reader, token_text)
    if token is None:
        return None
    ends_at = reader.now() + timedelta(seconds=LOGIN_S_MAX)
    if token.expires_at is not None:
        ends_at = min(ends_at, token.expires_at)
    id, secret, token_hex = ids.next(), secrets.token_urlsafe(SECRET_BYTES), UUID(token.id).hex
    kept = hash_of(f"{secret}.{token_hex}")
    new = NewAccessToken(id, kept, token.name, token.owner, (), ends_at)
    control.add_access_token(new, Deed(token.name, f"login by token {token.id}"))
    return f"{UUID(id).hex}.{token_hex}.{secret}"


def login_of(reader: Reader, text: str) -> Login | None:
    """The login of a text; None where it has ended, or its token opens nothing any more."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    kept = row_opened(reader, found["id"], f"{found['secret']}.{found['token']}")
    if kept is None or kept.expires_at is None:
        return None
    token = reader.access_token(str(UUID(found["token"])))
    if token is None or not token.is_good(reader.now()):
        return None
    proof = hmac.new(found["secret"].encode(), b"csrf", "sha256").hexdigest()
    return Login(kept.id, principal_of_token(token), kept.expires_at, proof)


def log_out(control: Control, login: Login) -> None:
    """End a login; its text opens nothing from now on."""
    control.revoke_access_token(login.id, Deed(login.principal.name, "logout"))
