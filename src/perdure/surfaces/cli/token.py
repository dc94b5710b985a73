"""perdure token: who may use the HTTP API, and for what."""

from typing import Any

import click
import msgspec

from perdure.app.surface import access
from perdure.app.surface.store_session import session_at
from perdure.model.access import AccessScope, AccessToken
from perdure.model.operations import Deed
from perdure.surfaces.cli.options import (
    command,
    echo_json,
    json_option,
    reason_and_by,
    store_option,
)
from perdure.surfaces.cli.root import CommandGroup
from perdure.surfaces.cli.tables import table


@click.group(cls=CommandGroup)
def token() -> None:
    """Create, list and revoke the access tokens of the HTTP API."""


@token.command()
@click.option("--name", required=True, help="Who uses it; the audit log names deeds by it.")
@click.option(
    "--owner",
    default="",
    help="Whose jobs it makes and reaches; every scope but admin and read_all needs one.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([one.value for one in AccessScope]),
    help="What it allows; may be repeated.",
)
@click.option(
    "--expires",
    metavar="TIME",
    help="How long it is good, as in 12h or 30d. Default: until it is revoked.",
)
@reason_and_by()
@store_option
@json_option
def create(store: str | None, as_json: bool, reason: str, by_whom: str, **asked: Any) -> None:
    """Create a token. Its text is shown now and never again: only a hash of it is kept."""
    with session_at(store, create=True) as session:
        text, kept = access.create_token(session, deed=Deed(by_whom, reason), **asked)
    if as_json:
        echo_json({"token": text, **_plain(kept)})
        return
    click.echo(text)
    click.echo(f"  keep it now: it is not shown again. It is {_says(kept)}.", err=True)
    click.echo(f"  to end it: {command('perdure token revoke {}', kept.id)}", err=True)


@token.command("list")
@store_option
@json_option
def list_tokens(store: str | None, as_json: bool) -> None:
    """List all tokens, newest first; never their texts."""
    with session_at(store) as session:
        found, now = access.tokens(session), session.opened.reader.now()
    if as_json:
        echo_json([{**_plain(one), "is_good": one.is_good(now)} for one in found])
        return
    if not found:
        click.echo("no tokens; make one: perdure token create --name … --owner … --scope submit")
        return
    heads = ("token", "name", "owner", "scopes", "state")
    rows = [
        (
            one.id,
            one.name,
            one.owner or "–",
            " ".join(one.scopes),
            _state(one, good=one.is_good(now)),
        )
        for one in found
    ]
    for line in table(heads, rows, left=heads):
        click.echo(line)


@token.command()
@click.argument("token_id", metavar="TOKEN")
@reason_and_by()
@store_option
def revoke(token_id: str, reason: str, by_whom: str, store: str | None) -> None:
    """Let a token open nothing any more, on every server, at once. TOKEN is the id that `token list` shows."""
    with session_at(store) as session:
        access.revoke_token(session, token_id, Deed(by_whom, reason))
    click.echo(f"{token_id}: revoked")


def _plain(one: AccessToken) -> dict[str, Any]:
    plain = msgspec.to_builtins(one)
    del plain["hash"]
    return dict(plain)


def _says(one: AccessToken) -> str:
    whose = f"{one.owner}'s" if one.owner else "an operator's"
    until = "" if one.expires_at is None else f" until {one.expires_at:%Y-%m-%d %H:%M:%SZ}"
    return f"{whose}, for {', '.join(one.scopes)}{until}"


def _state(one: AccessToken, *, good: bool) -> str:
    if one.revoked_at is not None:
        return f"revoked {one.revoked_at:%Y-%m-%d %H:%MZ}"
    if one.expires_at is None:
        return "good"
    return f"{'good until' if good else 'expired'} {one.expires_at:%Y-%m-%d %H:%MZ}"
