"""What workers work on: ``perdure worker gateway.worker:app``."""

from .app import make_texts, read_settings

app = make_texts(read_settings()).app
