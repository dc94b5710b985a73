"""The sample pipeline: a line of a source becomes a row of a data set in four stages, each with the policy that suits it.

    pick      a deterministic filter: what is broken is a dead letter at once, what is not wanted is skipped    datasets-once
    label     the model says what the sample is about; the one stage that costs money                         datasets-llm
    measure   numbers about the sample, by version                                                             datasets
    keep      the artifact, a file under its own hash                                                          datasets

A retry repeats the failed stage and none before it. `perdure worker examples.datasets.app:app` works on the samples.
"""

import os
from functools import cache
from hashlib import sha256
from typing import Any, Literal

import msgspec
from examples.datasets.settings import SETTINGS

from perdure import App, Backoff, Cancel, Context, Policy, StageError
from perdure.checks import check

WORDS_MIN = 4
MEASURED_BY = "measures-1"  # a change of what is measured is another version
TOPICS = ("food", "travel", "work", "sport", "other")


def policy_at(preset: str, scale: float) -> Policy | str:
    """The preset itself; or with its waits scaled, under another name, for demonstrations and tests."""
    if scale == 1:
        return preset
    usual = Policy.based_on(preset, name=preset).backoff
    cap_s = None if usual.cap_s is None else usual.cap_s * scale
    backoff = Backoff(usual.curve, base_s=usual.base_s * scale, factor=usual.factor, cap_s=cap_s)
    return Policy.based_on(preset, name=f"{preset}-x{scale:g}", backoff=backoff)


app = App(SETTINGS.store)
app.upstream("llm", concurrency=16)
ONCE, LLM, USUAL = (
    policy_at(one, SETTINGS.scale) for one in ("datasets-once", "datasets-llm", "datasets")
)


class Sample(msgspec.Struct):
    """A line of a source."""

    id: str
    text: str


class Label(msgspec.Struct):
    """What the model is asked for."""

    topic: Literal["food", "travel", "work", "sport", "other"]
    title: str


class Labeled(msgspec.Struct):
    sample: Sample
    label: Label


class Measured(msgspec.Struct):
    sample: Sample
    label: Label
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


@app.stage(policy=ONCE)
def pick(given: dict[str, Any]) -> Sample | Cancel:
    try:
        sample = msgspec.convert(given, Sample)
    except msgspec.ValidationError as wrong:
        raise StageError("input_invalid", f"that is no sample: {wrong}") from None
    words = len(sample.text.split())
    return sample if words >= WORDS_MIN else Cancel(f"{words} words are too few")


@cache
def client() -> Any:
    """The model's client, made when it is first used. It tries nothing again by itself: the policy does."""
    import httpx2

    key = {"Authorization": f"Bearer {SETTINGS.llm_key}"}
    return httpx2.Client(base_url=SETTINGS.llm_url, headers=key, timeout=SETTINGS.timeout_s)


FORM = {
    "name": "label",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {
            "topic": {"enum": list(TOPICS)},
            "title": {"type": "string", "minLength": 1, "maxLength": 60},
        },
        "required": ["topic", "title"],
        "additionalProperties": False,
    },
}


@app.stage(policy=LLM, upstream="llm", timeout_s=2 * SETTINGS.timeout_s)
def label(sample: Sample, context: Context) -> Labeled:
    asked = {
        "model": SETTINGS.llm_model,
        "messages": [
            {"role": "system", "content": f"Answer with JSON: topic ({', '.join(TOPICS)}), title."},
            {"role": "user", "content": sample.text},
        ],
        "response_format": {"type": "json_schema", "json_schema": FORM},
        "temperature": 0,
        "max_tokens": 200,
    }
    said = {"X-Request-Id": context.request_id}
    answer = client().post("/chat/completions", json=asked, headers=said).raise_for_status().json()
    used, choice = answer["usage"], answer["choices"][0]
    tokens_in, tokens_out = used["prompt_tokens"], used["completion_tokens"]
    usd = tokens_in * SETTINGS.usd_per_mtok_in + tokens_out * SETTINGS.usd_per_mtok_out
    context.usage(tokens_in=tokens_in, tokens_out=tokens_out, cost_usd=usd / 1e6)
    text = choice["message"]["content"]
    return Labeled(sample, check(text, Label, finish_reason=choice["finish_reason"]))


@app.stage(policy=USUAL)
def measure(labeled: Labeled) -> Measured:
    words = labeled.sample.text.lower().split()
    return Measured(
        labeled.sample, labeled.label, len(words), round(len(set(words)) / len(words), 3)
    )


@app.stage(policy=USUAL)
def keep(measured: Measured) -> Row:
    """Write the artifact, whole or not at all; whoever comes second writes the same bytes."""
    body = msgspec.json.encode(measured)
    name = sha256(body).hexdigest()
    path = SETTINGS.folder / "artifacts" / name[:2] / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(body)
    part.replace(path)
    sample, said = measured.sample, measured.label
    return Row(
        sample.id, sample.text, said.topic, said.title, measured.words, measured.variety, MEASURED_BY, name
    )  # fmt: skip


samples = app.pipeline("samples", pick, label, measure, keep)
