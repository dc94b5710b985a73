"""Retries inside of a stage are seen: of clients that are there, of those that it makes, and of decorators."""

import functools
import sys
from types import ModuleType, SimpleNamespace

import pytest

from perdure import App
from perdure.engine.nested_retries import nested_retries
from perdure.rules.diagnosis.own_retries import CLIENTS, TELLING, retries_of
from tests.sdks.kit import load
from tests.sdks.test_own_retries import KITS, LINES

URL = "http://127.0.0.1:9"


@pytest.mark.parametrize("name", [one for one in KITS if one != "cohere"])
def test_a_client_that_was_made_by_the_documented_line_makes_no_more_calls(name):
    words, _ = KITS[name](URL)
    assert retries_of(eval(LINES[name], dict(words))) == 0


def loud_genai():
    words, _ = KITS["google-genai"](URL)
    said = words["HttpOptions"](retry_options=words["HttpRetryOptions"]())
    return words["genai"].Client(http_options=said)


def loud_mistral():
    retries = load("mistralai.client.utils.retries")
    words, _ = KITS["mistralai"](URL)
    backoff = retries.BackoffStrategy(1, 2, 1.5, 10)
    return words["Mistral"](retry_config=retries.RetryConfig("backoff", backoff, True))


def loud_session():
    requests = load("requests")
    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(max_retries=4))
    return session


def loud_httpx(name="httpx"):
    httpx = load(name)
    return httpx.Client(transport=httpx.HTTPTransport(retries=3))


def by_line(name: str, line: str):
    return lambda: eval(line, dict(KITS[name](URL)[0]))


LOUD = {
    "openai": (by_line("openai", "OpenAI()"), 2),
    "openai more": (by_line("openai", "OpenAI(max_retries=7)"), 7),
    "anthropic": (by_line("anthropic", "Anthropic()"), 2),
    "groq": (by_line("groq", "Groq()"), 2),
    "google-genai": (loud_genai, 4),
    "mistralai": (loud_mistral, float("inf")),
    "boto3": (by_line("boto3", 'boto3.client("sts")'), 2),
    "boto3 more": (by_line("boto3", 'boto3.client("sts", config=Config(retries={"max_attempts": 4}))'), 4),
    "obstore": (by_line("obstore", 'S3Store("bucket")'), 10),
    "httpx": (loud_httpx, 3),
    "httpx2": (lambda: loud_httpx("httpx2"), 3),
    "requests": (loud_session, 4),
    "urllib3": (by_line("urllib3", "urllib3.PoolManager()"), 3),
    "urllib3 more": (by_line("urllib3", "urllib3.PoolManager(retries=5)"), 5),
}  # fmt: skip


@pytest.mark.parametrize("name", LOUD)
def test_a_client_that_tries_again_says_how_often(name):
    make, count = LOUD[name]
    assert retries_of(make()) == count


@pytest.mark.parametrize("thing", [None, 5, "text", object(), SimpleNamespace(max_retries=9), dict])
def test_what_is_no_client_is_left_alone(thing):
    assert retries_of(thing) == 0


class Liar:
    """Raises whatever it is asked, and says that it is of another class."""

    @property
    def __class__(self):
        raise SystemExit

    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_what_raises_when_it_is_looked_at_ends_nothing():
    assert retries_of(Liar()) == 0
    kind = type(
        "BaseClient", (), {"__module__": "openai", "max_retries": property(lambda _: 1 / 0)}
    )
    assert retries_of(kind()) == 0


def test_a_stage_that_holds_such_a_thing_is_looked_at_to_the_end(monkeypatch):
    liar = Liar()

    def stage(item, context=None, more=(liar, {"one": liar})):
        return LIAR, more  # noqa: F821

    app = App("sqlite:///work.db")
    app.stage(stage)
    # Only now: whoever collects tests, or declares a stage, looks at what a module has.
    monkeypatch.setitem(globals(), "LIAR", liar)
    assert nested_retries(app._stages[stage]) == []


def test_every_class_that_must_be_told_is_one_that_says_how_often():
    assert set(TELLING) <= set(CLIENTS)


# -- what a stage reaches --------------------------------------------------------------------

MODULE = """
from functools import cache, partial
import tenacity, stamina
import openai
from openai import OpenAI
from perdure import App
import {name}_clients as clients

app = App("sqlite:///work.db")
loud = OpenAI(api_key="x")
quiet = OpenAI(api_key="x", max_retries=0)
by_name = {{"first": [loud]}}

class Gateway:
    def __init__(self):
        self.sdk = loud
    def ask(self, item):
        return item

@cache
def lazy():
    return OpenAI(api_key="x")

@cache
def lazy_and_quiet():
    return OpenAI(api_key="x", max_retries=0)

def asked(item, client):
    return item

def by_global(item):
    return loud.chat

def by_closure(client):
    def inner(item):
        return client.chat
    return inner

def by_default(item, context=None, client=loud):
    return client

def by_call(item):
    return further(item)

def further(item):
    return by_name["first"]

def by_module(item):
    return clients.loud.chat

def made_lazily(item):
    return lazy().chat

def made_by_module(item):
    return openai.AsyncOpenAI().chat

def made_after_import(item):
    from anthropic import Anthropic
    return Anthropic().messages

@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def decorated(item):
    return item

@stamina.retry(on=OSError, attempts=4)
def decorated_too(item):
    return item

def quietly(item):
    return quiet.chat, lazy_and_quiet().chat

def told_in_the_call(item):
    return loud.with_options(max_retries=0).chat

def made_quietly_after_import(item):
    from anthropic import Anthropic
    return Anthropic(max_retries=0).messages

gateway = Gateway()
"""

SEEN = {
    "by_global": "loud (openai.OpenAI) makes up to 2 more calls by itself",
    "by_closure": "client (openai.OpenAI) makes up to 2 more calls by itself",
    "by_default": "client (openai.OpenAI) makes up to 2 more calls by itself",
    "by_call": "a member (openai.OpenAI) makes up to 2 more calls by itself",
    "by_module": "loud (openai.OpenAI) makes up to 2 more calls by itself",
    "by_method": "sdk (openai.OpenAI) makes up to 2 more calls by itself",
    "by_partial": "client (openai.OpenAI) makes up to 2 more calls by itself",
    "made_lazily": "lazy makes a client of OpenAI without max_retries=0",
    "made_by_module": "made_by_module makes a client of AsyncOpenAI without max_retries=0",
    "made_after_import": "made_after_import makes a client of Anthropic without max_retries=0",
    "decorated": "retry (tenacity.Retrying) makes up to 2 more calls by itself",
    "decorated_too": "retry_ctx (stamina._RetryContextIterator) makes up to 3 more calls by itself",
}
UNSEEN = ["quietly", "told_in_the_call", "made_quietly_after_import"]


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    (folder / "nested_stages.py").write_text(MODULE.format(name="nested_stages"))
    (folder / "nested_stages_clients.py").write_text(
        "from openai import OpenAI\nloud = OpenAI(api_key='x')\n"
    )
    load("openai")
    sys.path.insert(0, str(folder))
    import nested_stages  # type: ignore[import-not-found]

    yield nested_stages
    sys.path.remove(str(folder))
    del sys.modules["nested_stages"], sys.modules["nested_stages_clients"]


def stage_of(module: ModuleType, name: str):
    calls = {
        "by_closure": lambda: module.by_closure(module.loud),
        "by_method": lambda: module.gateway.ask,
        "by_partial": lambda: functools.partial(module.asked, client=module.loud),
    }
    call = calls[name]() if name in calls else getattr(module, name)
    app = App("sqlite:///work.db")
    app.stage(name=name)(call)
    return app._stages[call]


@pytest.mark.parametrize("name", SEEN)
def test_what_tries_again_inside_of_a_stage_is_named(name, module):
    assert nested_retries(stage_of(module, name)) == [f"stage {name!r}: {SEEN[name]}"]


@pytest.mark.parametrize("name", UNSEEN)
def test_a_stage_that_switches_it_off_is_let_pass(name, module):
    assert nested_retries(stage_of(module, name)) == []


def test_a_stage_that_leads_to_itself_and_to_very_much_is_walked_through_to_an_end():
    many: list[object] = []
    many += [many, {"again": many}, *range(200)]

    def stage(item, context=None, more=many):
        return stage, more

    app = App("sqlite:///work.db")
    app.stage(stage)
    assert nested_retries(app._stages[stage]) == []
