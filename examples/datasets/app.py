"""The sample pipeline: a line of a source becomes a row of a data set in four stages, each with the policy that suits it.

    pick      a deterministic filter: what is broken is a dead letter at once, what is not wanted is skipped    datasets-once
    label     the model says what the sample is about; the one stage that costs money                         datasets-llm
    measure   numbers about the sample, by version                                                             datasets
    keep      the artifact, a file under its own hash                                                          datasets

A retry repeats the failed stage and none before it. `perdure worker examples.datasets.app:app` works on the samples.
"""

from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from uuid import uuid4

import httpx2
import msgspec
from examples.datasets import settings as known
from examples.datasets.settings import SETTINGS

from perdure import App, Cancel, Context, Policy, StageError
from perdure.checks import check

WORDS_MIN = 4
MEASURED_BY = "measures-1"  # a change of what is measured is another version
FILES = Path(SETTINGS[known.FOLDER])


def policy_at(preset: str, scale: float) -> Policy | str:
    """The preset itself; or with its waits, which have a cap, scaled under another name, for demonstrations and tests."""
    if scale == 1:
        return preset
    usual = Policy.based_on(preset, name=preset).backoff
    backoff = replace(usual, base_s=usual.base_s * scale, cap_s=usual.cap_s * scale)
    return Policy.based_on(preset, name=f"{preset}-x{scale:g}", backoff=backoff)


app = App(settings=SETTINGS)
app.upstream("llm", concurrency=16)
LLM, USUAL = (policy_at(one, SETTINGS[known.SCALE]) for one in ("datasets-llm", "datasets"))


class Sample(msgspec.Struct):
    """A line of a source."""

    id: str
    text: str


class Label(msgspec.Struct, forbid_unknown_fields=True):
    """What the model is asked for."""

    topic: Literal["food", "travel", "work", "sport", "other"]
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=60)]


class Labeled(msgspec.Struct):
    sample: Sample
    label: Label


class Measured(Labeled):
    words: int
    variety: float  # different words / words


class Row(msgspec.Struct):
    """A row of a data set."""

    id: str
    text: str
    topic: str
    title: str
    words: int
    variety: float
    measured_by: str
    artifact: str


@app.stage(policy="datasets-once")  # one try has no waits to scale
def pick(given: dict[str, Any]) -> Sample | Cancel:
    try:
        sample = msgspec.convert(given, Sample)
    except msgspec.ValidationError as wrong:
        said = f"that is no sample: {given.get('unreadable', wrong)}"
        raise StageError("input_invalid", said, public_message=said) from None
    words = len(sample.text.split())
    return sample if words >= WORDS_MIN else Cancel(f"{words} words are too few")


@cache
def client() -> httpx2.Client:
    """The model's client, made when it is first used. It tries nothing again by itself: the policy does."""
    key = {"Authorization": f"Bearer {SETTINGS[known.LLM_KEY]}"}
    return httpx2.Client(
        base_url=SETTINGS[known.LLM_URL], headers=key, timeout=SETTINGS[known.TIMEOUT_S]
    )


TOPICS = ", ".join(get_args(Label.__annotations__["topic"]))
SCHEMA = msgspec.json.schema_components([Label])[1]["Label"]
FORM = {"type": "json_schema", "json_schema": {"name": "label", "strict": True, "schema": SCHEMA}}


@app.stage(policy=LLM, upstream="llm", timeout_s=2 * SETTINGS[known.TIMEOUT_S])
def label(sample: Sample, context: Context) -> Labeled:
    asked = {
        "model": SETTINGS[known.LLM_MODEL],
        "messages": [
            {"role": "system", "content": f"Answer with JSON: topic ({TOPICS}), title."},
            {"role": "user", "content": sample.text},
        ],
        "response_format": FORM,
        "temperature": 0,
        "max_tokens": 200,
    }
    said = {"X-Request-Id": context.request_id}
    answer = client().post("/chat/completions", json=asked, headers=said).raise_for_status().json()
    used, choice = answer["usage"], answer["choices"][0]
    tokens_in, tokens_out = used["prompt_tokens"], used["completion_tokens"]
    usd = (tokens_in * SETTINGS[known.USD_IN] + tokens_out * SETTINGS[known.USD_OUT]) / 1e6
    context.usage(tokens_in=tokens_in, tokens_out=tokens_out, cost_usd=usd)
    text = choice["message"]["content"]
    return Labeled(sample, check(text, Label, finish_reason=choice["finish_reason"]))


@app.stage(policy=USUAL)
def measure(labeled: Labeled) -> Measured:
    words = labeled.sample.text.lower().split()
    variety = round(len(set(words)) / len(words), 3)
    return Measured(labeled.sample, labeled.label, len(words), variety)


@app.stage(policy=USUAL)
def keep(measured: Measured) -> Row:
    """Write the artifact, whole or not at all; whoever comes second writes the same bytes."""
    body = msgspec.json.encode(measured)
    name = sha256(body).hexdigest()
    path = FILES / "artifacts" / name[:2] / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{uuid4()}.part")
    part.write_bytes(body)
    part.replace(path)
    sample, said = measured.sample, measured.label
    numbers = (measured.words, measured.variety, MEASURED_BY)
    return Row(sample.id, sample.text, said.topic, said.title, *numbers, artifact=name)


samples = app.pipeline("samples", pick, label, measure, keep)
