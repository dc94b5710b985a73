"""perdure enqueue: put items into a pipeline."""

from datetime import datetime
from typing import Any, BinaryIO, Literal

import click
import msgspec

from perdure.app import load_pipeline
from perdure.app.files.items import json_values
from perdure.model.errors import CallerError
from perdure.surfaces.cli.options import (
    app_store_option,
    check_app_store,
    echo_json,
    for_app,
    json_option,
)


@click.command()
@click.argument("target", metavar="PIPELINE")
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@click.option("--from", "source", type=click.File("rb"), help="JSON lines; - is standard input.")
@click.option("--owner", default="", help="Whose items these are.")
@click.option("--key", help="Idempotency key; only with a single item.")
@click.option("--priority", type=int, default=0, help="Higher goes first; low never starves.")
@click.option(
    "--deadline",
    "--deadline-s",
    "deadline_s",
    type=float,
    help="Give up after that many seconds; only with a single item.",
)
@click.option(
    "--run-at",
    metavar="MOMENT",
    help="Begin not before then, as in 2026-11-16T09:30:00Z. Default: now.",
)
@click.option(
    "--if-failed",
    type=click.Choice(["keep", "retry"]),
    help="What becomes of a job with this --key that has failed: it stays failed, or is given a new life. Default: keep.",
)
@click.option("--request-id", help="In each log line of these items. Default: the id of each job.")
@click.option(
    "--ordered-at",
    metavar="MOMENT",
    help="Stand in line as if enqueued then, as in 2026-11-16T09:30:00Z. Default: now.",
)
@app_store_option
@json_option
def enqueue(
    target: str,
    items: tuple[str, ...],
    source: Any,
    owner: str,
    key: str | None,
    priority: int,
    deadline_s: float | None,
    run_at: str | None,
    if_failed: Literal["keep", "retry"] | None,
    request_id: str | None,
    ordered_at: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Put items into a pipeline; each ITEM is JSON, or taken as plain text when it is not.

    PIPELINE is a module, or module:variable: a pipeline or an app that has only one; or module:app:name with the name
    that the pipeline was declared with.
    """
    for_app(store)
    reference, session, pipe = load_pipeline(target)
    check_app_store(reference, session.url, store)
    values = [_value(item) for item in items]
    if (key is not None or deadline_s is not None) and (source or len(values) != 1):
        what = f"--deadline {deadline_s:g}" if key is None else f"--key {key}"
        many = "a file with --from" if source else f"{len(values)} items"
        raise CallerError(
            f"{what} goes with exactly one item, and you gave {many}; enqueue one at a time, "
            "or many with a key or deadline each from Python: pipe.enqueue_many"
        )
    if if_failed is not None and key is None:
        raise CallerError(
            f"--if-failed {if_failed} says what becomes of the job with a key; name it: --key"
        )
    if not source and not values:
        raise CallerError("no items; pass them as arguments or with --from FILE")
    given: dict[str, Any] = {
        "owner": owner,
        "priority": priority,
        "request_id": request_id,
        "run_at": _moment("--run-at", run_at),
        "ordered_at": _moment("--ordered-at", ordered_at),
    }
    if len(values) == 1 and source is None:
        alone: dict[str, Any] = {"key": key, "deadline_s": deadline_s}
        done = [pipe.enqueue(values[0], if_failed=if_failed or "keep", **alone, **given)]
    else:
        done = pipe.enqueue_many([*values, *(_lines(source) if source else ())], **given)
    if as_json:
        echo_json([{"id": one.id, "created": one.created} for one in done])
        return
    for one in done if len(done) <= 20 else ():
        click.echo(one.id)
        if not one.created:
            click.echo("its key was taken: this is the same job", err=True)
    if len(done) > 20:
        click.echo(f"enqueued {len(done)} items, {done[0].id} to {done[-1].id}")


def _lines(source: BinaryIO) -> list[Any]:
    name = getattr(source, "name", "<stdin>").replace("<stdin>", "standard input")
    try:
        return list(json_values(source, name))  # all are read before the first is written
    except CallerError as unreadable:
        raise CallerError(f"{unreadable}; nothing was enqueued") from None


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CallerError(
            f"{option} {text!r} is no moment with a time zone; write it as in 2026-11-16T09:30:00Z"
        )
    return moment


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except msgspec.DecodeError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            raise CallerError(
                f"the item {text[:60]!r} begins like JSON and is none ({error}); mend it, or pass "
                "it as a JSON text in quotation marks"
            ) from None
        return text
