"""Finding the App that a command names."""

import importlib
import sys
from pathlib import Path

from perdure.app.app import App
from perdure.model.errors import AppNotFound


def load_app(reference: str) -> App:
    """The App behind ``module:attribute``, looked up from the working directory."""
    module_name, _, attribute = reference.partition(":")
    attribute = attribute or "app"
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise AppNotFound(
            f"{reference!r} names no module; write module:attribute, as in work:app, without .py"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if not f"{module_name}.".startswith(f"{missing.name}."):
            raise  # a module that the app's module wants
        raise AppNotFound(
            f"no module {module_name!r} here; write module:attribute, as in work:app, and run "
            "the command where the module can be imported"
        ) from None
    if not hasattr(module, attribute):
        raise AppNotFound(f"{reference}: the module has no {attribute!r}; write module:attribute")
    found = getattr(module, attribute)
    if not isinstance(found, App):
        raise AppNotFound(
            f"{module_name}:{attribute} is {type(found).__name__}, not a perdure.App; "
            "write module:attribute"
        )
    return found
