"""perdure serve: the HTTP API of an app."""

import signal
import socket
import sys
from contextlib import ExitStack
from importlib.util import find_spec

import click

from perdure.app import load_session
from perdure.app.session.opening import when_there
from perdure.app.session.session import Session
from perdure.app.surface.access import tokens
from perdure.app.surface.serving import working, write_server_log
from perdure.app.worker.embedded import EmbeddedWorker
from perdure.model.errors import CallerError, StoreUnavailable
from perdure.surfaces.cli.options import app_store_option, command, for_app

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_GRACE_S = 10


@click.command()
@click.argument("app", metavar="APP")
@click.option("--host", "serve_host", metavar="HOST", help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8_000,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--as",
    "names",
    multiple=True,
    metavar="HOST",
    help="A name under which it is reached, as in jobs.example.com; may be repeated. Others are refused.",
)
@click.option("--worker", is_flag=True, help="Work on the jobs in this process, too.")
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="With --worker: jobs at once.")
@click.option(
    "--rate-per-owner",
    metavar="RATE",
    help="Requests that an owner may send, as in 50/s or 600/min; so many may come at once. Default: no limit.",
)
@click.option(
    "--open-jobs-per-owner",
    type=click.IntRange(0),
    default=1_000_000,
    show_default=True,
    help="Open jobs that an owner may have; 0 is no limit.",
)
@click.option(
    "--requests-max",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Requests that are answered at once; waits and streams are counted apart.",
)
@app_store_option
def serve(
    app: str,
    serve_host: str | None,
    port: int,
    names: tuple[str, ...],
    worker: bool,
    concurrency: int | None,
    rate_per_owner: str | None,
    open_jobs_per_owner: int,
    requests_max: int,
    store: str | None,
) -> None:
    """Serve the HTTP API of APP (module:variable) until it is stopped."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise CallerError("perdure serve needs starlette and uvicorn; pip install 'perdure[http]'")
    import uvicorn

    from perdure.surfaces.http.asgi import api_of
    from perdure.surfaces.http.limits import HttpLimits

    for_app(store)
    session = load_session(app)
    host = session.settings.with_given({"serve_host": serve_host}, given_as="option")["serve_host"]
    write_server_log(session)
    limits = HttpLimits(
        rate_per_owner=rate_per_owner,
        open_jobs_per_owner=open_jobs_per_owner or None,
        requests_max=requests_max,
    )
    api = api_of(session, hosts=(*_LOOPBACK, "[::1]", host, *names), limits=limits)
    # also while the store is away; uvicorn raises it once more at its end, and our worker still gives back what it holds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if not _lets_others_in(session) and host not in _LOOPBACK:
        raise CallerError(
            f"--host {host} is reached from other machines, and this store has no token that is good; make one first: "
            + command("perdure token create --name … --owner … --scope submit")
        )
    config = uvicorn.Config(
        api,
        host=host,
        port=port,
        log_level="warning",
        http="h11",  # which has a bound on headers, 64 KB
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
    )
    with ExitStack() as until_it_ends:
        until_it_ends.callback(session.close)
        listening = until_it_ends.enter_context(_listen(host, port))
        if worker:
            beside = working(session, concurrency)
            until_it_ends.callback(_check_told, beside)
            until_it_ends.enter_context(beside)
        at = f"[{host}]" if ":" in host else host
        click.echo(
            f"serving {app} at http://{at}:{listening.getsockname()[1]}/api; stop it with Ctrl-C"
        )
        uvicorn.Server(config).run(sockets=[listening])


def _lets_others_in(session: Session) -> bool:
    """Whether some token is good, once the store is there and has all that it takes to serve."""

    def ask() -> bool:
        session.make_ready()
        now = session.opened.reader.now()
        return any(one.is_good(now) for one in tokens(session))

    found = when_there(ask, session.settings["store_wait_s"], session.observers)
    session.observers.store_answers()
    return found


def _check_told(worker: EmbeddedWorker) -> None:
    """End as one whose store is away, which its log has told, if that is how our worker ended."""
    if worker.left_untold:
        sys.exit(StoreUnavailable.exit_code)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as wrong:
        why = str(wrong.strerror).partition(" (")[0]  # Python adds the address once more
        raise CallerError(
            f"cannot listen at --host {host} --port {port}: {why}; give another, or --port 0 for a free one"
        ) from None
