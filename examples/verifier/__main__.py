"""``python -m verifier``: the commands of `cli.py`."""

from .cli import main

main()
