"""Finding the App, or the pipeline, that a command names: alike for every command.

``module:variable`` names an App or a pipeline, ``module:app:name`` a pipeline by the name with which it was declared. A
variable goes before a declared name: ``module:name`` is a declared one where no App or pipeline is called so.
Without a variable it is the App that is called ``app``, or the only one that the module has.
A policy is named alike: ``module:policy``, or ``module:app:stage`` for the one that a stage really has.
"""

import importlib
import os
import sys
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import NamedTuple

from perdure.app.app import App
from perdure.app.files.policies import policy_at
from perdure.app.pipelines import Pipeline
from perdure.app.session.session import Session
from perdure.engine.stages import Stage
from perdure.model.errors import AppNotFound, PerdureError, UnknownName
from perdure.rules.evidence import one_line
from perdure.rules.foreign_code import try_or_none
from perdure.rules.policy import Policy

_TEXT_CHARS_MAX = 500


class _Found(NamedTuple):
    """What was named; ``reference`` leads another process to the same App."""

    reference: str
    session: Session
    pipe: Pipeline | None = None


class StageGates(NamedTuple):
    """A stage that was named, its upstream and the credential of that; None for what it has not."""

    stage: str
    upstream: str | None
    credential: str | None


def load_session(reference: str) -> Session:
    """The session of the App that is named, or of the pipeline that is; looked up from the working directory."""
    return _find(reference).session


def load_pipeline(target: str) -> tuple[str, Session, Pipeline]:
    """The pipeline that is named, or the only one of the App that is; its session, and a reference to the App."""
    reference, session, pipe = _find(target)
    return reference, session, pipe or _only_one(target, session)


def load_policy(target: str) -> tuple[Policy, StageGates | None]:
    """The policy that is named, and the stage whose it is: a preset, a file, a module's variable or a stage of an App."""
    module_name, colon, rest = target.partition(":")
    if not colon or Path(target).suffix in (".toml", ".json"):
        return policy_at(target), None
    variable, _, name = rest.partition(":")
    module = _import(module_name, target)
    thing = getattr(module, variable, None)
    if isinstance(thing, Policy) and not name:
        return thing, None
    if isinstance(thing, App):
        stage = _stage_called(name, thing, f"{module_name}:{variable}")
        return stage.policy, _gates_of(stage, thing)
    policies = sorted(one for one, value in vars(module).items() if isinstance(value, Policy))
    raise AppNotFound(
        f"{target!r} names no policy; write module:policy or module:app:stage; {module_name} has the policies: "
        f"{', '.join(policies) or 'none'}; the apps: {', '.join(sorted(_apps(module))) or 'none'}"
    )


def _stage_called(name: str, app: App, where: str) -> Stage:
    """The stage of that name as pipelines run it, or as it is declared where none does."""
    laid = [stage for line in app._session.laid_pipelines.values() for stage in line.stages]
    known = laid + [stage for stage in app._stages.values() if stage not in laid]
    found = [stage for stage in known if stage.name == name]
    if not found:
        names = ", ".join(sorted({stage.name for stage in known})) or "none"
        raise UnknownName(f"{where} has no stage {name!r}; write {where}:STAGE, one of: {names}")
    if any(stage.policy != found[0].policy for stage in found):
        raise UnknownName(
            f"{where} has {len(found)} stages {name!r}, with different policies; name the policy: module:policy"
        )
    return found[0]


def _gates_of(stage: Stage, app: App) -> StageGates:
    declared = app._session.upstreams.declared.get(stage.upstream or "")
    return StageGates(stage.name, stage.upstream, None if declared is None else declared.credential)


def _find(target: str) -> _Found:
    module_name, _, rest = target.partition(":")
    variable, _, name = rest.partition(":")
    module = _import(module_name, target)
    if not variable:
        variable = _usual_variable(module)
    thing = getattr(module, variable, None)
    if isinstance(thing, App):
        pipe = thing.get_pipeline(name) if name else None
        return _Found(f"{module_name}:{variable}", thing._session, pipe)
    if name:
        raise AppNotFound(f"{module_name}:{variable} is no perdure.App; {_has(module)}")
    if isinstance(thing, Pipeline):
        return _Found(_reference(module, thing._session, target), thing._session, thing)
    return _find_declarer(module, variable)


def _import(name: str, target: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise AppNotFound(
            f"{target!r} names no module; write module:variable, as in work:app, without .py"
        )
    if name.endswith(".py"):
        raise AppNotFound(
            f"{name!r} is a file; write its module and the app in it: {name[:-3]}:app"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    home = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except PerdureError as error:  # it says itself what is wrong
        error.args = (": ".join(filter(None, (_place_of(error, home), str(error)))),)
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise AppNotFound(
                f"no module {name!r} here; write module:variable, as in work:app, and run "
                "the command where the module can be imported"
            ) from None
        raise AppNotFound(
            f"{target} cannot be loaded: {_what_broke(error, home)}; "
            f"all of it: python -c 'import {name}'"
        ) from error


def _what_broke(error: Exception, home: str) -> str:
    """What an import has raised: its class, the line of the application's own code, and its text."""
    text = error.msg if isinstance(error, SyntaxError) else try_or_none(str, error)
    place = _place_of(error, home)
    what = f"{type(error).__name__} at {place}" if place else type(error).__name__
    return ": ".join(filter(None, (what, one_line(text or "", _TEXT_CHARS_MAX))))


def _place_of(error: Exception, home: str) -> str:
    """The file and line of the application's own code that has raised an error or called what did; empty where none did."""
    if isinstance(error, SyntaxError):
        own = [(error.filename or "", error.lineno)]
    else:
        frames = walk_tb(error.__traceback__)
        own = [(one.f_code.co_filename, line) for one, line in frames if _is_own(one, home)]
    if not own:
        return ""
    file, line = own[-1]
    return f"{os.path.relpath(file) if Path(file).exists() else file}:{line}"


def _is_own(frame: FrameType, home: str) -> bool:
    """Whether code is the application's: of its package, or neither installed, nor Python's, nor ours."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    is_foreign = package in sys.stdlib_module_names or package == "perdure"
    return package == home or not (is_foreign or "-packages/" in frame.f_code.co_filename)


def _usual_variable(module: ModuleType) -> str:
    apps = _apps(module)
    if "app" in apps or len(apps) != 1:
        return "app"
    return next(iter(apps))


def _find_declarer(module: ModuleType, name: str) -> _Found:
    """The one App of the module that has declared a pipeline of this name."""
    apps = {variable: app for variable, app in _apps(module).items() if name in app.pipelines}
    if len({id(app) for app in apps.values()}) > 1:
        ways = ", ".join(f"{module.__name__}:{variable}:{name}" for variable in apps)
        raise AppNotFound(f"more than one app has a pipeline {name!r}; write one of: {ways}")
    for variable, app in apps.items():
        return _Found(f"{module.__name__}:{variable}", app._session, app.get_pipeline(name))
    raise AppNotFound(f"{module.__name__} has no app or pipeline {name!r}; {_has(module)}")


def _reference(module: ModuleType, session: Session, target: str) -> str:
    apps = _apps(module).items()
    names = [f"{module.__name__}:{name}" for name, one in apps if one._session is session]
    return names[0] if names else target


def _apps(module: ModuleType) -> dict[str, App]:
    """By variable, the one that is called ``app`` first."""
    found = {name: one for name, one in vars(module).items() if isinstance(one, App)}
    return dict(sorted(found.items(), key=lambda one: one[0] != "app"))


def _has(module: ModuleType) -> str:
    """What the module has to offer, in words."""
    apps = _apps(module)
    pipes = {name for name, one in vars(module).items() if isinstance(one, Pipeline)}
    pipes |= {name for app in apps.values() for name in app.pipelines}
    return (
        f"it has the apps: {', '.join(sorted(apps)) or 'none'}; "
        f"the pipelines: {', '.join(sorted(pipes)) or 'none'}"
    )


def _only_one(target: str, session: Session) -> Pipeline:
    if len(session.laid_pipelines) != 1:
        known = ", ".join(sorted(session.laid_pipelines)) or "none"
        raise UnknownName(
            f"{target!r} names no pipeline, and the app has not just one; write module:app:name; it has: {known}"
        )
    return Pipeline(session, *session.laid_pipelines.values())
