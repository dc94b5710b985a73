"""Policies by name or in files, TOML or JSON; a relative path counts from the working directory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.model.errors import CallerError, ConfigError, UnknownName
from perdure.rules.field_checks import nearest
from perdure.rules.policy import LOADERS, FilePath, Policy
from perdure.rules.policy_form import policy_from
from perdure.rules.presets import PRESETS

_SUFFIXES = (".toml", ".json")


def policy_at(name: str | FilePath) -> Policy:
    """The preset of that name, or the policy in the file of that name or path."""
    if not isinstance(name, str):
        return policy_in(name)
    if name in PRESETS:
        return PRESETS[name].policy
    path = Path(name)
    if path.suffix not in _SUFFIXES and not path.is_file():
        raise UnknownName(f"no policy {name!r}; {nearest(name, PRESETS)}; or a .toml or .json file")
    return policy_in(path)


def policy_in(path: str | FilePath) -> Policy:
    """The policy in a file; what is wrong with it is told with the file's name."""
    file = Path(path)
    form = _read(file)
    try:
        return policy_from(form)
    except ConfigError as wrong:
        mistakes = str(wrong).splitlines()
        told = f" {wrong}" if len(mistakes) == 1 else "".join(f"\n  - {one}" for one in mistakes)
        raise ConfigError(f"policy file {str(file)!r}:{told}") from None


LOADERS[:] = [policy_in]


def _read(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        where = "" if path.is_absolute() else f" in the folder {str(Path.cwd())!r}"
        raise CallerError(f"cannot read the policy file {str(path)!r}{where}: {why}") from None
    language, parse = ("JSON", json.loads) if path.suffix == ".json" else ("TOML", tomllib.loads)
    try:
        form = parse(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy file {str(path)!r} is not valid {language}: {error}") from None
    if not isinstance(form, dict):
        raise ConfigError(f"policy file {str(path)!r} does not hold a table of fields")
    return form
