"""The lines that the documents give for switching an SDK's own retries off: each makes one call for an attempt."""

import re
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import App, Backoff, Policy
from perdure.model.nouns import replace
from perdure.rules.presets import preset
from perdure.testing import CLOSED, Answer
from tests.app.worker.working_off import worked_off
from tests.house.tree import ROOT
from tests.sdks.kit import PATIENT_S, load, seen

PAGE = (ROOT / "docs" / "howto-policies.md").read_text(encoding="utf-8")
LINES = dict(re.findall(r"^\| ([\w-]+) \| `([^`]+)` \|", PAGE, re.MULTILINE))

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
AT_ONCE = {"retry-after-ms": "1"}  # what tries again by itself would do it now
FAULTS = {
    "unavailable": Answer(503, {"error": {"message": "no"}}, AT_ONCE),
    "rate limit": Answer(429, {"error": {"message": "no"}}, AT_ONCE),
    "closed": CLOSED,
}


def chat(client: Any) -> Any:
    return client.chat.completions.create(**ASK)


def openai(url):
    return {"OpenAI": partial(load("openai").OpenAI, api_key="x", base_url=url)}, chat


def groq(url):
    return {"Groq": partial(load("groq").Groq, api_key="x", base_url=url)}, chat


def anthropic(url):
    made = partial(load("anthropic").Anthropic, api_key="x", base_url=url)
    return {"Anthropic": made}, lambda client: client.messages.create(max_tokens=9, **ASK)


def google_genai(url):
    genai = load("google.genai")
    words = {
        "genai": SimpleNamespace(Client=partial(genai.Client, api_key="x")),
        "HttpOptions": partial(genai.types.HttpOptions, base_url=url),
        "HttpRetryOptions": genai.types.HttpRetryOptions,
    }
    return words, lambda client: client.models.generate_content(model="m", contents="hi")


def mistralai(url):
    made = partial(load("mistralai.client").Mistral, api_key="x", server_url=url)
    return {"Mistral": made}, lambda client: client.chat.complete(**ASK)


def cohere(url):
    client = load("cohere").ClientV2(api_key="x", base_url=url, timeout=PATIENT_S)
    return {"client": client, **ASK}, lambda answer: answer


def boto3(url):
    session = load("boto3").session.Session()
    made = partial(
        session.client,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    words = {
        "boto3": SimpleNamespace(client=made),
        "Config": partial(load("botocore.config").Config, read_timeout=PATIENT_S),
    }
    return words, lambda client: client.invoke_model(modelId="m", body=b"{}")


def obstore(url):
    made = partial(
        load("obstore.store").S3Store,
        endpoint=f"{url}/bucket",
        region="us-east-1",
        access_key_id="x",
        secret_access_key="x",
        client_options={"allow_http": True},
    )
    return {"S3Store": made}, lambda store: load("obstore").get(store, "key")


def httpx(url):
    module = load("httpx")
    return {"httpx": module}, lambda client: client.post(url).raise_for_status()


def requests(url):
    return {"requests": load("requests")}, lambda client: client.post(url).raise_for_status()


def urllib3(url):
    return {"urllib3": load("urllib3")}, lambda client: client.request("GET", url)


KITS = {
    "openai": openai, "anthropic": anthropic, "groq": groq, "google-genai": google_genai,
    "mistralai": mistralai, "cohere": cohere, "boto3": boto3, "obstore": obstore, "httpx": httpx,
    "requests": requests, "urllib3": urllib3,
}  # fmt: skip


def tried(name: str, line: str, url: str) -> None:
    """Run a line of the document, and ask its client once."""
    words, ask = KITS[name](url)

    def call() -> Any:
        client = eval(line, dict(words))
        try:
            return ask(client)
        finally:
            with suppress(AttributeError):
                client.close()

    with suppress(AssertionError):  # an answer that raises nothing, as urllib3's
        seen(call)


def test_every_line_of_the_document_is_run_here():
    assert list(LINES) == list(KITS)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", KITS)
def test_the_documented_line_makes_one_call(name, fault, upstream):
    upstream.script(FAULTS[fault])
    tried(name, LINES[name], upstream.url)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(("name", "line"), [("openai", "OpenAI()"), ("groq", "Groq()")])
def test_without_it_the_client_makes_three(name, line, upstream):
    """The twin: what the document warns of, and that calls are counted."""
    upstream.script(FAULTS["unavailable"])
    tried(name, line, upstream.url)
    assert len(upstream.requests) == 3


THREE = Policy.based_on(
    "standard", name="three", attempts_max=3, backoff=Backoff("fixed", base_s=0.0)
)


DOWN = Answer(503, {"error": {"message": "no"}})


def test_no_layer_of_ours_nests_retries(upstream, tmp_path):
    """As many calls arrive as attempts are written down: in a worker, and while a caller waits."""
    app = App(f"sqlite:///{tmp_path / 'work.db'}")

    @app.stage(policy=THREE)
    def ask(item):
        with load("openai").OpenAI(api_key="x", base_url=upstream.url, max_retries=0) as client:
            chat(client)

    pipe = app.pipeline("p", ask)
    upstream.script(DOWN)
    ref = pipe.enqueue(1)
    worked_off(app)
    job = app._session.opened.reader.job(ref.id)
    attempts = app._session.opened.reader.attempts(job.no)
    assert len(upstream.requests) == len(attempts) == job.counters.failures == 3

    upstream.script(DOWN)
    sync = replace(
        preset("gateway-sync"), backoff=Backoff("fixed", base_s=0.0), exhausted="hand_over"
    )
    called = pipe.call(1, policy=sync)
    attempts = app._session.opened.reader.attempts(app._session.opened.reader.job(called.job.id).no)
    assert called.handed_over
    assert len(upstream.requests) == len(attempts)
    app.close()
