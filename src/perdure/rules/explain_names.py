"""Evidence from a name alone, as a person writes it: ``ReadTimeout``, ``openai.RateLimitError``.

A bare name is looked for among Python's own exceptions, then in the families. Nothing is imported to
find out what a class descends from: the families tell it.
"""

from collections.abc import Iterator
from functools import cache

from perdure.model.outcomes import Evidence
from perdure.rules.matchers import output, postgres, python, redis, s3, transport
from perdure.rules.matchers.families import AWS, FAMILIES, MODELS
from perdure.rules.matchers.family import Family, short_name

# A bare ValidationError is a model's output before it is a parameter of botocore's.
_BARE_ORDER: tuple[Family, ...] = (
    output.FAMILY,
    *MODELS,
    transport.FAMILY,
    *AWS,
    postgres.FAMILY,
    redis.FAMILY,
    python.FAMILY,
)

_ALIASES = {
    "EnvironmentError": "builtins.OSError",
    "IOError": "builtins.OSError",
    "socket.timeout": "builtins.TimeoutError",
    "asyncio.TimeoutError": "builtins.TimeoutError",
    "concurrent.TimeoutError": "builtins.TimeoutError",
    "pydantic.ValidationError": "pydantic_core.ValidationError",
    "anthropic.RequestTooLargeError": "anthropic.ContentTooLargeError",
    "anthropic.DeadlineExceededError": "anthropic.GatewayTimeoutError",
}

# What psycopg derives the class of a state from, by the state's first two characters.
_STATE_PARENTS = {
    "22": "psycopg.DataError",
    "23": "psycopg.IntegrityError",
    "0A": "psycopg.NotSupportedError",
    "25": "psycopg.InternalError",
    "XX": "psycopg.InternalError",
    "3D": "psycopg.ProgrammingError",
    "42": "psycopg.ProgrammingError",
}


def evidence_for_name(name: str) -> Evidence | None:
    """What an exception of that name would say, or None if no table knows it."""
    known = _known_names()
    short = known.get(name) or known.get(short_name(name))
    if short is None:
        return None
    return Evidence(names=tuple(_ancestry(short)), sqlstate=_states().get(short))


def known_names() -> tuple[str, ...]:
    """Every name that `evidence_for_name` knows, bare and qualified."""
    return tuple(sorted(_known_names()))


def known_s3_codes() -> tuple[str, ...]:
    """Every error code of S3 that has a meaning here."""
    return tuple(sorted(s3.CODES))


@cache
def _known_names() -> dict[str, str]:
    """Short and bare names, each with the short name it stands for; the first that has it keeps it."""
    known: dict[str, str] = {}
    for short in _shorts():
        known.setdefault(short, short)
        known.setdefault(short.partition(".")[2], short)
    return known | _ALIASES


def _shorts() -> Iterator[str]:
    yield from (f"builtins.{kind.__name__}" for kind in _builtins())
    for family in _BARE_ORDER:
        yield from family.late_classes
        yield from family.classes
        yield from family.wrappers
        yield from family.statuses
        yield from family.parents
        yield from family.parents.values()
    yield from _states()


@cache
def _states() -> dict[str, str]:
    return {f"psycopg.{name}": state for name, state in postgres.CLASS_STATES.items()}


@cache
def _parents() -> dict[str, str]:
    parents = {
        short: _STATE_PARENTS.get(state[:2], "psycopg.OperationalError")
        for short, state in _states().items()
    }
    for family in FAMILIES:
        parents |= family.parents
    return parents


def _ancestry(short: str) -> Iterator[str]:
    """The class and what it descends from, as far as the families tell."""
    parents = _parents()
    while not short.startswith("builtins."):
        yield short
        short = parents.get(short, "builtins.Exception")
    named = [kind for kind in _builtins() if kind.__name__ == short.partition(".")[2]]
    yield from (f"builtins.{one.__name__}" for one in named[0].__mro__ if one is not object)


@cache
def _builtins() -> tuple[type[BaseException], ...]:
    """Python's own exceptions, found from their root."""
    found: dict[type[BaseException], None] = {}
    waiting: list[type[BaseException]] = [BaseException]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == "builtins" and kind not in found:
            found[kind] = None
            waiting += kind.__subclasses__()
    return tuple(found)
