"""The command ``perdure``."""

import sys

from perdure import __version__

__all__ = ["main"]


def main() -> None:
    """The entry point. Its version is asked for often, and by scripts that wait: nothing more is loaded for that."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"perdure, version {__version__}\n")
        return
    import signal

    from perdure.surfaces.cli.root import main as run

    try:
        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said: how it went stays as it was
