"""Uses of the public API that a type checker has to accept as they stand; never executed."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

import perdure
from perdure import (
    Action,
    Backoff,
    Curve,
    HintMode,
    Hints,
    Jitter,
    Kind,
    Match,
    Policy,
    Rule,
    Spread,
    checks,
)

app = perdure.App("sqlite:///work.db")

patient = Policy(
    "patient",
    attempts_max=4,
    backoff=Backoff(Curve.LINEAR, base_s=0.5),
    jitter=Jitter(ratio=0.1),
    hint=Hints(HintMode.EXACT, counted=False),
    rules={Kind.NETWORK: Rule(Action.RETRY), Kind.TIMEOUT: Rule(Action.RETRY, attempts_max=2)},
    matches=(Match(Kind.BILLING, code="no_money"),),
)

wordy = Policy(
    "wordy",
    rules={"network": Rule("retry", attempts_max=9), "timeout": "retry", "limits": Rule("wait")},
    otherwise="retry",
    backoff=Backoff("schedule", steps_s=(60, 300)),
    jitter=Jitter("full"),
    hint=Hints("floor", s_max=3600, kinds={"rate_limited"}),
    matches=[Match("billing", code="no_money")],
)
assert_type(wordy.backoff.curve, Curve)
by_kind: dict[Kind, Rule] = {Kind.NETWORK: Rule("retry")}
by_name: dict[str, str] = {"network": "retry"}
assert_type(Policy("a", rules=by_kind).rules, Mapping[Kind, Rule])
assert_type(Policy("b", rules=by_name, profile="sync", exhausted="hand_over").exhausted, Action)
assert_type(Rule("retry").action, Action)
assert_type(Backoff(curve="exponential").curve, Curve)
assert_type(Jitter("full").spread, Spread)
assert_type(Hints("exact", kinds=["rate_limited"]).mode, HintMode)
Policy.based_on("standard", name="c", rules={"transient": "retry"}, otherwise="fail")
Policy.based_on(wordy, name="d", rules={Kind.NETWORK: "wait", "timeout": Rule("fail")})
assert_type(Policy.load(Path("mine.toml")), Policy)


@app.stage
def fetch(item: dict[str, str]) -> str:
    return item["text"]


@app.stage(policy=Path("mine.toml"))
def read(item: dict[str, str]) -> str:
    return item["text"]


@app.stage(policy=patient, timeout_s=5.0, upstream="model")
async def think(text: str, ctx: perdure.Context) -> perdure.Succeeded | perdure.Snooze:
    if ctx.attempts_left == 0:
        raise perdure.StageError("invalid_output", "no total", wait_s=2.0)
    return perdure.Succeeded(text, label="passed")


@dataclass
class Letter:
    """An item with a type."""

    to: str


@app.stage(process=True, timeout_s=5)
def post(letter: Letter, ctx: perdure.Context) -> Letter:
    ctx.progress(1, 2, "stamped")
    ctx.usage(tokens_in=10, tokens_out=3, cost_usd=0.002)
    assert_type(ctx.time_left_s(), float)
    assert_type(ctx.cancelled, bool)
    assert_type(ctx.request_id, str)
    assert_type(ctx.attempt_id, str)
    return letter


@app.stage
def save(letter: Letter, ctx: perdure.Context) -> None:
    with sqlite3.connect("work.db") as cx:
        ctx.complete(perdure.Succeeded(letter.to, label="sent"), within=cx)


letters = app.pipeline("letters", post)
letters.enqueue(Letter("ann"))
pipe = app.pipeline("texts", fetch, think)
app.every("15m", pipe, {"text": "x"})
app.every("0 7 * * 1-5", letters, Letter("ann"), name="mornings", timezone="Europe/Berlin")
ref = pipe.enqueue({"text": "x"}, owner="me", key="k", priority=1, deadline_s=60)
assert_type(fetch({"text": "x"}), str)
assert_type(ref, perdure.JobRef)
assert_type(pipe.enqueue_many([1, 2]), list[perdure.JobRef])
pipe.enqueue_many(perdure.Item(n, key=f"k{n}", priority=n, deadline_s=60) for n in range(3))

run = pipe.run([1, 2], name="nightly", key=lambda item: item, failure_budget=0.2)
assert_type(run, perdure.Run)
assert_type(run.wait(wait_s=1).status, perdure.RunStatus)
assert_type(next(run.results(order="ended")), perdure.Result)
assert_type(app.dead.redrive(run="nightly", canary=5, rate="10/s"), perdure.Redrive)
assert_type(app.jobs.cancel(owner="ann", reason="enough"), perdure.Redrive)
assert_type(app.jobs.retry(pipeline="p", payloads={"k": 1}), perdure.Redrive)
assert_type(app.job("some id", owner="ann"), perdure.JobRef)
app.job("some id").run_now(reason="it is urgent", by="ann")
app.job("some id").retry(payload=None)
assert_type(app.job("some id").retry(dry_run=True), str)
assert_type(app.job("some id").state, perdure.State)
assert_type(app.job(7).id, str)
assert_type(app.job("some id").wait(wait_s=None), perdure.JobView)
assert_type(app.job("some id").attempts(), list[perdure.AttemptView])
assert_type(app.job("some id").history()[0], perdure.HistoryLine)


attempts = perdure.Setting("attempts", int, 3, "", "Attempts.")
patience = perdure.Setting[float | None]("patience_s", float, None, "seconds", "Patience.")
names = [
    perdure.Alias(attempts, variable="ATTEMPTS"),
    perdure.Alias("grace_s", key="grace_ms", unit="ms"),
]
settings = perdure.load_settings([*names, perdure.Alias(patience, variable="P")], file_content={})
assert_type(settings[attempts], int)
assert_type(settings[patience], float | None)
assert_type(settings.origin("grace_s"), str)
assert_type(perdure.App(settings=settings).settings, perdure.Settings)


async def caller() -> None:
    later = await pipe.enqueue_async({"text": "y"})
    await later.result_async(wait_s=1)
    later.cancel(reason="no longer wanted")
    assert_type(await pipe.call_async(1, wait_s=2), perdure.Called)
    assert_type(pipe.call(1, on_lost="drop"), perdure.Called)


def invoice(text: str) -> Letter:
    """A model's output, checked."""
    parsed = checks.read_json(text, Letter, finish_reason="stop")
    assert_type(parsed, checks.Parsed[Letter])
    assert_type(parsed.repaired, bool)
    assert_type(checks.fits({"to": "Ann"}, Letter), Letter)
    return checks.check(text, Letter, finish_reason=None, repair=False)
