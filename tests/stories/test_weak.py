"""Upstreams that are weak, and jobs with defects of their own: two real workers fare as the simulator says.

The short stories are the rows of its table with fewer jobs, an upstream without a limit, and delays and hints of a
fifth of a second. The long ones have the limit, the delays and the hints of the table.
"""

import pytest

from perdure.model.nouns import replace
from perdure.simulate import SCENARIOS
from perdure.simulate.replies import Form
from perdure.simulate.scene import Batch, Defect, Fleet, Scene
from tests.stories.kit import on_both, on_both_long
from tests.stories.toll import simulated, strays, suffered

pytestmark = pytest.mark.story

FLEET = Fleet(workers=2, concurrency=32, poll_s=0.2)
DELAY_S = 0.2
PIPELINES = {"W3c": "gated", "W5b": "gated", "W6c": "gated", "W13b": "bugged", "W14": "unfit"}
SHORT = {"W3c": 150, "W6c": 80, "W13b": 100}
LONG = {"W3c": 400, "W5b": 600, "W6c": 200, "W13b": 400, "W14": 120}
COMPARED = ("calls", "wasted", "holds")


def scene_of(name: str, jobs: int, **changes: float | None) -> Scene:
    scene = SCENARIOS[name].scene(1)
    upstream = replace(scene.upstream, **changes)
    return replace(scene, upstream=upstream, batches=(Batch("all", jobs),), fleet=FLEET)


def short(name: str) -> Scene:
    hint_s = DELAY_S if name == "W3c" else 0.0
    return scene_of(name, SHORT[name], rate_per_s=None, latency_s=0.05, hint_s_min=hint_s)


def assert_as_simulated(story, scene, *, seeds, delay_s=None):
    ranges = simulated(scene, seeds=seeds, delay_s=delay_s)
    toll = suffered(story, scene, PIPELINES[scene.name], delay_s=delay_s)
    defect = scene.defect
    struck = sum(defect.strikes(no) for no in range(scene.jobs)) if defect else 0
    wanted = {"succeeded": scene.jobs - struck, "failed": struck}
    assert toll.states == {state: jobs for state, jobs in wanted.items() if jobs}
    assert strays(toll, ranges, *COMPARED) == [], (toll, ranges)
    story.assert_audit_is_clean()


@pytest.mark.parametrize("name", SHORT)
@on_both_long
def test_a_weak_upstream_or_a_defect_costs_what_the_simulator_says(story, name):
    assert_as_simulated(story, short(name), seeds=20, delay_s=DELAY_S)


@on_both_long
def test_items_that_always_fail_end_though_nothing_else_is_left_to_probe_with(story):
    """W15: they fill the window, the gate is held, and a probe of theirs is held against them."""
    scene = scene_of("W15", 60, rate_per_s=None, latency_s=0.05)
    scene = replace(scene, defect=Defect(0.1, Form.FAULT, 25))
    ranges = simulated(scene, seeds=20, delay_s=DELAY_S)
    toll = suffered(story, scene, "poisoned", delay_s=DELAY_S)
    assert toll.states == {"succeeded": 54, "failed": 6}
    assert strays(toll, ranges, "calls", "holds") == [], (toll, ranges)
    story.assert_audit_is_clean()


def test_a_gate_that_breaks_for_a_weak_upstream_is_seen(story):
    scene = short("W6c")
    toll = suffered(story, scene, "breaking", delay_s=DELAY_S)
    assert "holds" in strays(toll, simulated(scene, seeds=20, delay_s=DELAY_S), *COMPARED)


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
@on_both
def test_a_weak_upstream_with_a_limit_costs_what_the_simulator_says(story, name):
    assert_as_simulated(story, scene_of(name, LONG[name], latency_s=0.2), seeds=40)
