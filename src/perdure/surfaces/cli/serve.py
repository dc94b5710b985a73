"""perdure serve: the HTTP API of an app."""

import socket
from contextlib import ExitStack
from importlib.util import find_spec

import click

from perdure.app import load_session
from perdure.app.surface.access import tokens
from perdure.app.surface.serving import working
from perdure.model.errors import CallerError
from perdure.surfaces.cli.options import app_store_option, command, for_app

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_GRACE_S = 10


@click.command()
@click.argument("app", metavar="APP")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
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
@app_store_option
def serve(
    app: str,
    host: str,
    port: int,
    names: tuple[str, ...],
    worker: bool,
    concurrency: int | None,
    store: str | None,
) -> None:
    """Serve the HTTP API of APP (module:variable) until it is stopped."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise CallerError("perdure serve needs starlette and uvicorn; pip install 'perdure[http]'")
    import uvicorn

    from perdure.surfaces.http.asgi import api_of

    for_app(store)
    session = load_session(app)
    session.make_ready()
    if host not in _LOOPBACK and not tokens(session):
        raise CallerError(
            f"--host {host} is reached from other machines, and this store has no token; make one first: "
            + command("perdure token create --name … --owner … --scope submit")
        )
    api = api_of(session, hosts=(*_LOOPBACK, "[::1]", host, *names))
    config = uvicorn.Config(
        api,
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
    )
    with ExitStack() as until_it_ends:
        until_it_ends.callback(session.close)
        if worker:
            until_it_ends.enter_context(working(session, concurrency))
        bound = _listen(host, port)
        click.echo(
            f"serving {app} at http://{host}:{bound.getsockname()[1]}/api; stop it with Ctrl-C"
        )
        uvicorn.Server(config).run(sockets=[bound])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise CallerError(
            f"cannot listen at {host} port {port}: {error.strerror}; name another with --port or --host"
        ) from None
