"""The scenes, W1 to W16: where retrying goes wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from random import Random

from perdure.model.errors import UnknownName
from perdure.model.nouns import replace
from perdure.simulate.replies import Form
from perdure.simulate.scene import Batch, Defect, Fleet, Scene
from perdure.simulate.upstream import Account, Brownout, Ramp, UpstreamModel

OUTAGE_MEDIAN_S = 45 * 60.0  # of 456 incidents of three providers, by their status pages
OUTAGE_SIGMA = 1.34
_OUTAGE_S_MAX = 86_400.0

_ALL = (
    "fixed",
    "fixed-full",
    "expo",
    "expo-25",
    "expo-equal",
    "expo-full",
    "decorrelated",
    "sdk",
    "sdk-3",
)
_HINTED = (*_ALL, "hint-exact", "hint-floor")
_FEW = ("expo-25", "expo-full", "sdk-3")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A row of the table: a scene for each seed, and who is compared in it.

    ``drain_max`` is the aim for the drain over its bound, where there is one.
    """

    name: str
    title: str
    scene: Callable[[int], Scene]
    rivals: tuple[str, ...]
    drain_max: float | None = None


def _one(jobs: int) -> tuple[Batch, ...]:
    return (Batch("all", jobs),)


def _always(scene: Scene) -> Callable[[int], Scene]:
    return lambda _: scene


def _outage(name: str, title: str, outage_s: float, jobs: int, horizon_s: float) -> Scene:
    upstream = UpstreamModel(outages_s=((0.0, outage_s),))
    return Scene(name, title, upstream, _one(jobs), horizon_s)


def _sample(seed: int) -> Scene:
    drawn = exp(Random(f"outage {seed}").gauss(0.0, OUTAGE_SIGMA))
    outage_s = min(OUTAGE_MEDIAN_S * drawn, _OUTAGE_S_MAX)
    title = f"outage of {outage_s / 60:.0f} min"
    return _outage("W2d", title, outage_s, 12_000, outage_s + 20_000.0)


def _burst(name: str, title: str, *, horizon_s: float = 6_000.0, **changes: bool | float) -> Scene:
    upstream = replace(UpstreamModel(rate_per_s=10.0, burst=10.0), **changes)
    return Scene(name, title, upstream, _one(2_000), horizon_s)


def _defects(
    name: str, title: str, share: float, form: Form, calls: int, fault_share: float = 0.0
) -> Scenario:
    upstream = UpstreamModel(fault_share=fault_share)
    defect = Defect(share, form, calls)
    scene = Scene(name, title, upstream, _one(2_000), 6_000.0, defect=defect)
    # An item that always gets a 500 stays away for 2 s after each; the bound does not.
    return _scenario(scene, (), 1.6 if form is Form.FAULT else 1.15)


def _faults(name: str, share: float, drain_max: float) -> Scenario:
    title = f"partial failure, {share:.0%} of calls".replace("%", " %")
    upstream = UpstreamModel(fault_share=share)
    scene = Scene(name, title, upstream, _one(2_000), 3_000.0)
    return Scenario(name, title, _always(scene), _FEW, drain_max)


def _scenario(scene: Scene, rivals: tuple[str, ...], drain_max: float | None = None) -> Scenario:
    return Scenario(scene.name, scene.title, _always(scene), rivals, drain_max)


_BLIP = Scene(
    "W1",
    "blip of 5 s in the middle",
    UpstreamModel(outages_s=((30.0, 35.0),)),
    _one(2_000),
    3_000.0,
)
_MINUTE = _outage("W2a", "outage of 60 s", 60.0, 2_000, 4_000.0)
_LONG = _outage("W2b", "outage of 45 min, 1,000 jobs", 2_700.0, 1_000, 6_000.0)
_LONG_MANY = _outage("W2c", "outage of 45 min, 12,000 jobs", 2_700.0, 12_000, 9_000.0)
_BROWNOUT = Scene(
    "W7",
    "brown-out: five times slower for 5 min, calls time out",
    UpstreamModel(
        rate_per_s=None,
        timeout_s=10.0,
        brownout=Brownout(from_s=30.0, until_s=330.0, factor=5.0, slots=20),
    ),
    _one(6_000),
    4_000.0,
)
_RAMP = Scene(
    "W8",
    "ramp limit: 5/s, then half as much again every 15 min",
    UpstreamModel(burst=5.0, hints=False, ramp=Ramp(start_per_s=5.0)),
    _one(12_000),
    8_000.0,
)
_BILLING = Scene(
    "W9",
    "no money left after 800 calls; paid at 30 min, released a minute later",
    UpstreamModel(account=Account(calls=800, paid_s=1_800.0)),
    _one(2_000),
    6_000.0,
    person_s=(1_860.0,),
)
_STREAM = Scene(
    "W10",
    "errors in the middle of 10 % of the answers",
    UpstreamModel(cut_share=0.1),
    _one(2_000),
    3_000.0,
)
_TENANTS = Scene(
    "W11",
    "two tenants on one credential: 4,000 jobs, and 400 a minute later",
    UpstreamModel(),
    (Batch("large", 4_000), Batch("small", 400, at_s=60.0)),
    4_000.0,
    fair=True,
)
_RESTART = Scene(
    "W12",
    "all workers killed twice inside an outage of 60 s",
    UpstreamModel(outages_s=((0.0, 60.0),)),
    _one(2_000),
    4_000.0,
    killed_s=(20.0, 40.0),
)
_RANDOM = Scene(
    "W3c",
    "5 % of the calls meet a 429 by chance, with a hint of 2 s",
    UpstreamModel(refused_share=0.05, hint_s_min=2.0),
    _one(2_000),
    3_000.0,
)
_UNLUCKY = Scene(
    "W3d",
    "the second and third call meet a 429, and then 5 % by chance, with a hint of 2 s; no limit, one worker",
    UpstreamModel(
        rate_per_s=None, refused_share=0.05, refused_calls=frozenset({2, 3}), hint_s_min=2.0
    ),
    _one(4_000),
    3_000.0,
    Fleet(workers=1, concurrency=50),
)
_SPELL = Scene(
    "W16",
    "two of three calls meet a 429 for 25 s, with a hint of 1 s; then none, and answers are quick",
    UpstreamModel(
        rate_per_s=None, latency_s=0.02, refused_share=0.67, refused_until_s=25.0, hint_s_min=1.0
    ),
    _one(2_000),
    6_000.0,
)
_DEBT = Scene(
    "W5b",
    "40/s without hints, quick answers, and rejected calls run into debt",
    UpstreamModel(
        rate_per_s=40.0,
        burst=40.0,
        latency_s=0.3,
        hints=False,
        rejected_count=True,
        debt_max=200.0,
    ),
    _one(2_000),
    3_000.0,
)

SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        _scenario(_BLIP, _ALL, 1.15),
        _scenario(_MINUTE, ("all-at-once", *_ALL), 1.15),
        _scenario(_LONG, ("all-at-once", *_ALL)),
        _scenario(_LONG_MANY, ("expo-full",), 1.3),
        Scenario("W2d", "outages drawn from 456 real ones, 12,000 jobs", _sample, (), 1.3),
        _scenario(_burst("W3", "burst of 2,000 over 10/s, with hint"), _HINTED, 1.15),
        _scenario(
            _burst("W3b", "the same, and a hint is never less than 20 s", hint_s_min=20.0),
            ("hint-exact", "hint-floor"), 1.15,
        ),
        _scenario(_RANDOM, ("hint-exact", "hint-floor"), 1.2),
        _scenario(_UNLUCKY, ("hint-exact", "hint-floor"), 1.2),
        _scenario(_burst("W4", "burst of 2,000 over 10/s, without hint", hints=False), _ALL, 1.15),
        _scenario(
            _burst("W5", "burst of 2,000 over 10/s, and rejected calls count", horizon_s=1_500.0, rejected_count=True),
            _HINTED, 1.15,
        ),
        _scenario(_DEBT, _FEW, 1.2),
        _faults("W6a", 0.1, 1.15),
        _faults("W6b", 0.3, 1.3),
        _faults("W6c", 0.5, 1.3),
        _scenario(_BROWNOUT, _FEW, 1.15),
        _scenario(_RAMP, _FEW, 1.15),
        _scenario(_BILLING, _FEW, 1.15),
        _scenario(_STREAM, _FEW, 1.15),
        _scenario(_TENANTS, _FEW, 1.15),
        _scenario(_RESTART, ("gate-in-memory", "expo-full", "sdk-3"), 1.15),
        _defects("W13a", "a bug of one's own in every item", 1.0, Form.OWN_BUG, 2),
        _defects("W13b", "a bug of one's own in 10 % of the items", 0.1, Form.OWN_BUG, 2),
        _defects("W14", "answers that never fit, and 8 % of calls fail", 1.0, Form.MISFIT, 3, 0.08),
        _defects("W15", "an item in 30 always gets a 500", 1 / 30, Form.FAULT, 25),
        _scenario(_SPELL, (), None),
    )
}  # fmt: skip


def scenarios_named(name: str) -> list[Scenario]:
    """The scenarios of that name: W2 is all of its forms."""
    wanted = name.upper().rstrip("ABCDE") + name[len(name.rstrip("abcdeABCDE")) :].lower()
    found = [one for one in SCENARIOS.values() if one.name == wanted]
    found = found or [
        one for one in SCENARIOS.values() if one.name.rstrip("abcde") == wanted and wanted != "W"
    ]
    if not found:
        raise UnknownName(f"no scenario {name!r}; one of: {', '.join(SCENARIOS)}")
    return found
