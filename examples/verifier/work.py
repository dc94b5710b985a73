"""What the daemon's workers work on: ``perdure worker verifier.work:app`` goes by ``daemon.yaml``, too."""

from .app import make_verifier
from .settings import read_settings

app = make_verifier(*read_settings()).app
