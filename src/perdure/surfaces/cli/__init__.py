"""The command ``perdure``."""

import sys

__all__ = ["main"]


def main() -> None:
    """The entry point. Its version is asked for often, and by scripts that wait: nothing more is loaded for that."""
    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"perdure, version {version('perdure')}\n")
        return
    import signal

    from perdure.surfaces.cli.root import main as run

    try:
        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said: how it went stays as it was
