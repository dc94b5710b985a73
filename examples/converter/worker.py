"""What workers work on: ``perdure worker converter.worker:app``, which goes by the document's names, too."""

from .app import make_converter
from .settings import read_settings

converter = make_converter(read_settings())
converter.files.make_folders()
app = converter.app
