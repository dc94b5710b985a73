"""``python -m perdure.surfaces.cli``: the same command, for processes that start their own kind."""

from perdure.surfaces.cli import main

main()
