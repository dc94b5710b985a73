"""The command ``perdure``."""

from perdure.surfaces.cli.root import main

__all__ = ["main"]
