"""The tables name classes by text; here every name is looked up in the library it is about."""

import pytest

from perdure.rules.explain_names import evidence_for_name, known_names
from perdure.rules.matchers.families import FAMILIES
from perdure.rules.matchers.family import short_name
from perdure.rules.matchers.postgres import CLASS_STATES
from tests.sdks.kit import load

# package: the modules that bring in its exceptions.
MODULES = {
    "openai": ["openai"],
    "anthropic": ["anthropic"],
    "groq": ["groq"],
    "google": ["google.genai.errors", "google.auth.exceptions"],
    "mistralai": ["mistralai.client.errors", "mistralai.extra.exceptions"],
    "cohere": ["cohere.errors"],
    "botocore": ["botocore.exceptions"],
    "obstore": ["obstore.exceptions"],
    "psycopg": ["psycopg.errors"],
    "psycopg_pool": ["psycopg_pool"],
    "redis": ["redis.exceptions"],
    "httpx": ["httpx"],
    "httpx2": ["httpx2"],
    "httpcore": ["httpcore"],
    "httpcore2": ["httpcore2"],
    "requests": ["requests.exceptions"],
    "urllib3": ["urllib3.exceptions"],
    "aiohttp": ["aiohttp"],
    "h11": ["h11"],
    "anyio": ["anyio"],
    "websockets": ["websockets.exceptions"],
    "msgspec": ["msgspec"],
    "pydantic_core": ["pydantic_core"],
    "perdure": ["perdure.model.errors"],
    "http": ["http.client"],
    "urllib": ["urllib.error"],
    "socket": ["socket"],
    "ssl": ["ssl"],
    "json": ["json"],
    "xml": ["xml.etree.ElementTree"],
    "tomllib": ["tomllib"],
    "asyncio": ["asyncio"],
    "concurrent": ["concurrent.futures", "concurrent.futures.process"],
    "queue": ["queue"],
    "subprocess": ["subprocess"],
    "zipfile": ["zipfile"],
    "gzip": ["gzip"],
    "builtins": ["builtins"],
}

# Known to the tables and not installed for the tests: too large, or of no use here.
ABSENT = {
    "asyncpg", "azure", "cerebras", "django", "fastjsonschema", "instructor", "jsonschema",
    "jsonschema_rs", "litellm", "lxml", "orjson", "pg8000", "psycopg2", "pydantic", "pypdf",
    "simplejson", "sqlalchemy", "together", "torch", "valkey", "yaml",
}  # fmt: skip

# Entries for classes that the installed version does not have under this name.
ELSEWHERE = {
    "google.TooManyRequests", "google.ServiceUnavailable", "google.GatewayTimeout",
    "google.InternalServerError",  # google-api-core
    "httpcore.TransportError", "httpcore.CloseError", "httpcore.DecodingError",
    "httpcore.InvalidURL", "httpcore.TooManyRedirects", "httpcore.StreamError",
    "httpcore2.TransportError", "httpcore2.CloseError", "httpcore2.DecodingError",
    "httpcore2.InvalidURL", "httpcore2.TooManyRedirects", "httpcore2.StreamError",
}  # fmt: skip


def tabled() -> set[str]:
    return {
        name
        for family in FAMILIES
        for table in (family.classes, family.late_classes, family.wrappers, family.statuses)
        for name in table
    } | {name for family in FAMILIES for pair in family.parents.items() for name in pair}


def loaded(package: str) -> dict[str, type]:
    for name in MODULES[package]:
        module = load(name)
        for exported in getattr(module, "__all__", ()):
            getattr(module, exported, None)  # some load their parts on demand
    found: dict[str, type] = {}
    waiting: list[type] = [BaseException]
    while waiting:
        kind = waiting.pop()
        name = short_name(f"{kind.__module__}.{kind.__name__}")
        if name not in found:
            found[name] = kind
            waiting += kind.__subclasses__()
    return found


def test_every_package_in_the_tables_is_accounted_for():
    packages = {name.partition(".")[0] for name in tabled()}
    assert packages <= set(MODULES) | ABSENT
    assert set(MODULES) & ABSENT == set()


@pytest.mark.parametrize("package", sorted(MODULES))
def test_every_class_in_the_tables_exists(package):
    there = loaded(package)
    named = {name for name in tabled() if name.startswith(f"{package}.")}
    assert named - set(there) - ELSEWHERE == set()


@pytest.mark.parametrize("package", sorted(MODULES))
def test_every_parent_in_the_tables_is_one(package):
    there = loaded(package)
    for family in FAMILIES:
        for name, parent in family.parents.items():
            if name.startswith(f"{package}.") and name in there:
                ancestry = [
                    short_name(f"{one.__module__}.{one.__name__}") for one in there[name].__mro__
                ]
                assert parent in ancestry, name


@pytest.mark.parametrize("package", ["openai", "anthropic", "groq"])
def test_every_status_in_the_tables_is_the_class_s_own(package):
    there = loaded(package)
    for family in FAMILIES:
        for name, status in family.statuses.items():
            if name.startswith(f"{package}.") and name in there:
                assert getattr(there[name], "status_code", status) == status, name


def test_every_state_in_the_tables_is_the_class_s_own():
    errors = load("psycopg.errors")
    for name, state in CLASS_STATES.items():
        kind = errors.lookup(state)
        assert kind.__name__ == name
        evidence = evidence_for_name(name) if name != "SyntaxError" else None
        if evidence is not None:
            own = [short_name(f"{one.__module__}.{one.__name__}") for one in kind.__mro__[:-1]]
            assert (list(evidence.names), evidence.sqlstate) == (own, state)


def test_every_known_name_gives_evidence():
    for name in known_names():
        evidence = evidence_for_name(name)
        assert evidence is not None
        assert evidence.names[-1] == "builtins.BaseException"
