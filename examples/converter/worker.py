"""A worker of the converter: ``python -m converter.worker`` starts `perdure worker` with the document's names.

WORKER_CONCURRENCY and WORKER_LEASE_TTL_SEC become its options. The app below is what it, and each process that it starts,
imports; ``perdure worker converter.worker:app`` works as well, with Perdure's own variables for these two.
"""

import os
import sys
from pathlib import Path

from .app import make_converter
from .settings import BadSetting, Settings

try:
    settings = Settings.read()
except BadSetting as wrong:
    sys.exit(f"converter: {wrong}")
converter = make_converter(settings)
converter.files.make_folders()
app = converter.app


def main() -> None:
    """Become `perdure worker`."""
    perdure = Path(sys.executable).with_name("perdure")
    options = ["--concurrency", str(settings.concurrency), "--lease-ttl", str(settings.lease_ttl_s)]
    name = f"{__package__}.worker:app"
    os.execv(perdure, [str(perdure), "worker", name, *options, *sys.argv[1:]])


if __name__ == "__main__":
    main()
