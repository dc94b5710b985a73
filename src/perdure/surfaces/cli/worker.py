"""perdure worker: a supervisor and its working processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.app import check_served, check_times, lanes_served, settings_in_force, supervise
from perdure.app.session.settings import Settings, SettledValue
from perdure.app.worker.metrics_port import metrics_port_of
from perdure.model.errors import AppNotFound, CallerError, PerdureError
from perdure.model.jobs import Lane
from perdure.model.workers import Role
from perdure.surfaces.cli.options import (
    app_store_option,
    check_app_store,
    for_app,
    with_options,
)

if TYPE_CHECKING:
    from perdure.app.session.session import Session

_SERVED = (
    click.option(
        "--queue",
        "queues",
        multiple=True,
        metavar="NAME",
        help="Serve only this queue; may be given several times.",
    ),
    click.option(
        "--category",
        "categories",
        multiple=True,
        metavar="NAME",
        help="Serve only this category; may be given several times.",
    ),
)
_TUNING = (
    *_SERVED,
    click.option("--concurrency", type=int, help="Jobs in flight at once."),
    click.option("--lease-ttl", "lease_ttl_s", type=float, help="Seconds of silence = dead."),
    click.option("--grace", "grace_s", type=float, help="Seconds to finish at shutdown."),
    click.option(
        "--store-wait",
        "store_wait_s",
        type=float,
        help="Seconds to wait at the start for a store that is away.",
    ),
    click.option("--poll", "poll_s", type=float, help="Longest rest between looks, in seconds."),
    click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="Log lines."),
    click.option("--log-level", help="Least severe level that is written."),
)


@click.command()
@click.argument("app", metavar="APP")
@with_options(*_TUNING)
@click.option(
    "--processes",
    type=int,
    help="Working processes. Each has a lease of its own and --concurrency jobs in flight; one that dies is "
    "replaced while the others go on.",
)
@click.option(
    "--metrics-port",
    type=int,
    help="Offer metrics to Prometheus at this port; 0 takes a free one, which the log tells.",
)
@click.option(
    "--metrics-host", help="The address at which it does; whoever reaches it may read. [127.0.0.1]"
)
@app_store_option
@click.option("--lifeline", type=int, hidden=True)
def worker(
    app: str,
    store: str | None,
    queues: tuple[str, ...],
    categories: tuple[str, ...],
    processes: int | None,
    metrics_port: int | None,
    metrics_host: str | None,
    lifeline: int | None,
    **tuning: object,
) -> None:
    """Work on the jobs of APP until told to stop.

    APP is a module, or module:variable: an app or one of its pipelines; or module:app:name with the name that a
    pipeline was declared with.

    All pipelines of the app are served; --queue and --category serve some.

    The first SIGTERM or Ctrl-C lets running stages finish within the grace and gives the rest back;
    the second gives everything back at once. Nothing is lost either way.
    """
    given = {
        "processes": processes,
        "metrics_port": metrics_port,
        "metrics_host": metrics_host,
        **tuning,
    }
    settings_in_force(**given)  # what is wrong without the app is told before it is loaded
    for_app(store)
    described = _describe(app) if lifeline is None else _read_description(lifeline)
    config = Settings(described.settled).with_given(given, given_as="option").config
    check_times(config)
    if config.metrics_port is not None:
        from perdure.app.session.metrics import check_metrics_extra

        check_metrics_extra("--metrics-port")
    check_app_store(app, described.url, store)
    check_served(app, described.lanes, queues, categories)
    port = None if lifeline is not None else metrics_port_of(described.url, config)

    def spawn(role: Role, number: int) -> subprocess.Popen[bytes]:
        _let_go_of_the_dead()
        lifeline, ours = os.pipe()  # ours closes when we die, whatever we die of
        command = [sys.executable, "-m", "perdure.surfaces.cli", "worker-child", app]
        command += ["--worker", str(number), "--role", role.value, "--lifeline", str(lifeline)]
        command += [word for name in queues for word in ("--queue", name)]
        command += [word for name in categories for word in ("--category", name)]
        for name, value in tuning.items():
            if value is not None:
                command += [_flag(name), str(value)]
        words, files = ([], []) if port is None else port.offer_piece()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                [*command, *words], pass_fds=(lifeline, *files), start_new_session=True
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(lifeline)
        _LIFELINES[ours] = process
        if port is not None:
            port.give_piece(process)
        return process

    lanes = lanes_served(described.lanes, queues, categories)
    sys.exit(supervise(described.url, config=config, spawn=spawn, lanes=lanes, port=port))


def _read_description(lifeline: int) -> "Described":
    """What whoever started us knows of the app; when its end of the pipe closes, we stop as by a signal."""
    file = open(lifeline, "rb")  # noqa: SIM115 - open for as long as we live

    def wait() -> None:
        file.read(1)
        os.kill(os.getpid(), signal.SIGTERM)

    line = file.readline()
    threading.Thread(target=wait, daemon=True).start()
    if not line.endswith(b"\n"):
        raise CallerError("whoever started this worker has ended already")
    return msgspec.json.decode(line, type=Described)


_LIFELINES: dict[int, subprocess.Popen[bytes]] = {}  # our ends, open for as long as we both live


def _let_go_of_the_dead() -> None:
    for ours, process in list(_LIFELINES.items()):
        if process.returncode is not None:
            del _LIFELINES[ours]
            os.close(ours)


@click.command("worker-child", hidden=True)
@click.argument("app")
@click.option("--worker", "number", type=int, required=True)
@click.option("--role", type=click.Choice(["main", "suspects", "alone"]), required=True)
@click.option("--lifeline", type=int, required=True)
@click.option("--figures", help="FILE:PIECE, where it counts.")
@with_options(*_TUNING)
def worker_child(
    app: str,
    *,
    number: int,
    role: str,
    lifeline: int,
    figures: str | None,
    queues: tuple[str, ...],
    categories: tuple[str, ...],
    **tuning: object,
) -> None:
    """Be one working process of a supervisor."""
    from perdure.app import work  # the app and all it works with, which no supervisor needs

    session = _session_or_end(app)
    status = work(
        session,
        worker=number,
        role=Role(role),
        config=session.settings.with_given(tuning, given_as="option").config,
        lifeline=lifeline,
        queues=queues,
        categories=categories,
        figures=None if figures is None else _numbers(figures),
    )
    sys.exit(status)


def _numbers(figures: str) -> tuple[int, int]:
    file, _, piece = figures.partition(":")
    return int(file), int(piece)


def _session_or_end(app: str) -> "Session":
    """The app's session; a module that has broken since the supervisor began may be mended: then it tries again."""
    from perdure.app import load_session

    try:
        return load_session(app)
    except AppNotFound as error:
        if error.__cause__ is None:
            raise
        click.echo(f"perdure: {error}", err=True)
        sys.exit(PerdureError.exit_code)


class Described(msgspec.Struct, frozen=True):
    """What a supervisor has to know of an app."""

    url: str
    lanes: tuple[Lane, ...]
    settled: dict[str, SettledValue]


def description(session: "Session", more: Sequence[Lane] = ()) -> bytes:
    """An app in one line, as a supervisor reads it, with ``more`` lanes that it is to serve."""
    return msgspec.json.encode(
        Described(session.url, (*session.lanes, *more), session.settings.ours)
    )


@click.command("describe", hidden=True)
@click.argument("app")
def describe(app: str) -> None:
    """Say where an app keeps its jobs; run in a process of its own by the supervisor."""
    from perdure.app import load_session

    session = load_session(app)
    session.check_writable()
    answer = description(session).decode()
    click.echo(f"\n{answer}")  # on a line of its own, whatever the module has printed
    sys.stdout.flush()
    os._exit(0)  # what the app's module may have started must not keep the answer waiting


def _describe(app: str) -> Described:
    """The store and the queues of an app, without importing the app into the supervisor."""
    command = [sys.executable, "-m", "perdure.surfaces.cli", "describe", app]
    try:
        asked = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603 - as above
    except OSError as error:
        raise PerdureError(
            f"no process can be started to read {app}: {error.strerror or error}"
        ) from error
    if asked.returncode >= CallerError.exit_code:
        sys.exit(asked.returncode)  # it has said why
    if asked.returncode != 0 or not asked.stdout:
        raise AppNotFound(
            f"{app} cannot be loaded: its module failed or ended the process while it was "
            "imported; what it said stands above"
        )
    answer = msgspec.json.decode(asked.stdout.splitlines()[-1], type=Described)
    if not answer.lanes:
        raise AppNotFound(f"{app} declares no pipeline; there is nothing to work on")
    return answer


def _flag(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")
