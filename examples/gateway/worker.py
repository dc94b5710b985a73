"""What workers work on: ``perdure worker gateway.worker:app``."""

from .app import make_texts, settings_in

app = make_texts(settings_in()).app
