"""``python -m verifier``: the commands of `cli.py`."""

import sys

try:
    from .cli import main
except ImportError as missing:  # else Python would end with 1, which is a verdict
    print(f"error: {missing}; pip install perdure httpx2 pyyaml", file=sys.stderr)
    sys.exit(20)

main()
