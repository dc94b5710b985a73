"""Finding the App that a command names."""

import importlib
import sys
from pathlib import Path

from perdure.app.app import App
from perdure.app.pipelines import Pipeline
from perdure.model.errors import AppNotFound, UnknownName


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


def load_pipeline(target: str) -> tuple[str, App, Pipeline]:
    """The pipeline behind ``module:attribute:pipeline``, its App, and the reference that leads to that.

    The attribute may be left out if it is ``app``, the pipeline if the App has only one.
    """
    module, _, rest = target.partition(":")
    attribute, _, pipeline = rest.rpartition(":")
    if attribute:
        app = load_app(f"{module}:{attribute}")
        return f"{module}:{attribute}", app, app.find(pipeline)
    if pipeline:
        usual = _usual_app(module)
        if usual is not None and pipeline in usual.pipelines:
            return f"{module}:app", usual, usual.find(pipeline)
        try:
            app = load_app(target)
        except AppNotFound:
            if usual is None:
                raise
            return f"{module}:app", usual, usual.find(pipeline)
        return target, app, _only_one(target, app)
    app = load_app(module)
    return f"{module}:app", app, _only_one(target, app)


def _usual_app(module: str) -> App | None:
    try:
        return load_app(module)
    except AppNotFound:
        return None


def _only_one(target: str, app: App) -> Pipeline:
    if len(app.pipelines) != 1:
        known = ", ".join(sorted(app.pipelines)) or "none"
        raise UnknownName(
            f"{target!r} names no pipeline, and the app has not just one; write APP:PIPELINE; it has: {known}"
        )
    return app.find(app.pipelines[0])
