"""Pipelines of scripted stages: what a stage does in one attempt is drawn when it runs.

They are real async stages under the real `engine.run`. A poison item kills the process that runs
it, every time; everything else is drawn from the acts of the seed, and after the chaos they all work.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from perdure.engine.attempt.context import Context
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.model.errors import StageError
from perdure.model.runs import NANO
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.ports import Store
from tests.sim.checker import Checker
from tests.sim.completing import Completing
from tests.sim.process import Kernel, Process
from tests.sim.swarm import Setup
from tests.sim.weather import Refused, Weather
from tests.sim.world import World

LONG, SHORT = "long", "short"
LONG_STAGES = ("one", "two", "three")
SHORT_STAGES = ("only",)


class Script:
    """Draws what stages do."""

    def __init__(
        self, world: World, setup: Setup, kernel: Kernel, checker: Checker, completing: Completing
    ) -> None:
        self._world = world
        self._completing = completing
        self._gates = checker.gates
        self._weather = Weather(world, setup.outside, setup.ttl_s)
        self._setup = setup
        self._kernel = kernel
        self._began = checker.began
        self._used = checker.runs.used
        self.defects = False  # whether, after the chaos, every probe meets the defect of the seed

    def stage_in(self, process: Process) -> Callable[[Any, Context], Any]:
        """A stage as the given process runs it."""

        async def play(item: Any, context: Context) -> Any:
            assert process.worker is not None
            self._began(context.job_id, context.token, process.worker)
            stored = False

            def end(value: object) -> None:
                if not stored:  # then nothing that comes after it counts
                    self._gates.ended(context.job_id, context.token, value)

            def good() -> None:
                nonlocal stored
                end({"of": context.stage})
                stored = True

            try:
                value = await self._work(context, process)
                if self._completing.does(context.stage) and not isinstance(value, Snooze | Cancel):
                    value = await self._completing.end(context, process, value, good)
            except BaseException as error:
                end(error)
                raise
            end(value)
            return value

        return play

    async def _work(self, context: Context, process: Process) -> Any:
        world, act = self._world, self._act(context)
        upstream = self._setup.outside.behind.get(context.stage)
        await asyncio.sleep(self._takes_s(upstream))
        if context.item.get("poison") == context.stage:
            await self._die(process)
        self._say_usage(context)
        trouble = None if upstream is None else self._weather.answer(upstream)
        if trouble is not None:
            raise trouble
        if act is not None:
            world.struck[act] += 1
            return await self._play(act, process)
        self._say_usage(context)
        return {"of": context.stage, "token": context.token}

    def _takes_s(self, upstream: str | None) -> float:
        """How long a call takes; that of an upstream that is well no longer than it may."""
        takes_s = self._world.rng.expovariate(1 / self._setup.work_s)
        well = upstream is not None and not self._world.chaos
        return min(takes_s, 0.5 * self._setup.timeout_s) if well else takes_s

    def _say_usage(self, context: Context) -> None:
        """What was used up since the last time."""
        if self._world.rng.random() < 0.3:
            return
        amounts = {name: self._world.rng.randint(0, 50) for name in ("tokens_in", "tokens_out")}
        mills = self._world.rng.choice((0, 1, 7))
        context.usage(**amounts, cost_usd=mills / 1000)
        said = {**amounts, "cost_nusd": mills * NANO // 1000}
        self._used(context.job_id, context.token, said)

    def health_of(self, upstream: str) -> Callable[[], Any]:
        """A check that asks the upstream how it is, as a call would find it."""

        async def health() -> bool:
            await asyncio.sleep(self._world.rng.uniform(0.0, 3.0))
            trouble = self._weather.answer(upstream)
            if trouble is not None:
                raise trouble
            return True

        async def judged() -> bool:
            try:
                healthy = await health()
            except BaseException as error:
                self._gates.checked(upstream, error)
                raise
            self._gates.checked(upstream, {"healthy": healthy})
            return healthy

        return judged

    def _act(self, context: Context) -> str | None:
        rng, defect = self._world.rng, self._setup.outside.defect
        probe = defect is not None and self._gates.was_probe(context.job_id, context.token)
        if probe and (rng.random() < 0.4 if self._world.chaos else self.defects):
            return defect
        if self._world.chaos:
            for act, chance in self._setup.acts.items():
                if rng.random() < chance:
                    return act
        return None

    async def _die(self, process: Process) -> None:
        self._world.struck["poison"] += 1
        if self._world.rng.random() < 0.5:
            self._kernel.exit(process, 3)
        else:
            self._kernel.die(process, 11)
        await asyncio.get_running_loop().create_future()

    async def _play(self, act: str, process: Process) -> Any:
        rng = self._world.rng
        match act:
            case "rate_limited" if rng.random() < 0.5:
                raise Refused(429, rng.choice((None, 0, 1, 4, 20, 100)))
            case "rate_limited":
                raise StageError("rate_limited", "slow down", wait_s=rng.uniform(0.0, 20.0))
            case "network":
                raise ConnectionResetError("gone")
            case "invalid_output":
                raise StageError("invalid_output", "no total")
            case "refused_value":
                return {"total": float("nan")}
            case "own_bug":
                return {}["total"]  # unknown, and of our own code
            case "internal":
                raise StageError("internal", "a defect")
            case "bad_request":
                raise Refused(400)
            case "unhinted":
                raise Refused(429)
            case "fatal":
                raise StageError("invalid_request", "cannot ever work")
            case "timeout":
                await asyncio.sleep(self._setup.timeout_s * 3)
            case "stubborn":
                return await self._stubborn()
            case "block_loop":
                assert process.loop is not None
                process.loop.block(self._setup.ttl_s * rng.choice((0.1, 0.5, 3.0)))
                await asyncio.sleep(0)
            case "snooze":
                return Snooze(rng.uniform(0.0, self._setup.ttl_s))
            case "withdraw":
                return Cancel("not wanted")
        return Succeeded({"after": act}, label="late")

    async def _stubborn(self) -> Any:
        """Does not let itself be cancelled, once."""
        try:
            await asyncio.sleep(self._setup.timeout_s * 0.8)
        except asyncio.CancelledError:
            await asyncio.sleep(self._setup.work_s)
            return {"stubborn": "stopped"}
        return {"stubborn": True}


def catalogue_of(
    setup: Setup,
    call: Callable[[Any, Context], Any],
    lane_nos: dict[str, dict[str, int]],
    *,
    narrow: bool = False,
) -> Catalogue:
    """The two pipelines, or the first of them, with ``call`` behind every stage."""
    lines = []
    policies = iter(setup.policies)
    for name, stages in ((LONG, LONG_STAGES), (SHORT, SHORT_STAGES)):
        made = tuple(
            Stage(one, call, next(policies), setup.timeout_s, setup.outside.behind.get(one))
            for one in stages
        )
        lines.append(LaidPipeline(name, "q", "c", made, lane_nos.get(name, {})))
    return Catalogue(lines[:1] if narrow else lines)


def lay(store: Store, catalogue: Catalogue) -> dict[str, dict[str, int]]:
    """The lane numbers of both pipelines, by pipeline and stage."""
    numbers: dict[str, dict[str, int]] = {}
    for name in (LONG, SHORT):
        line = catalogue.pipeline(name)
        assert line is not None
        found = store.lanes(line.lanes())
        numbers[name] = {lane.stage: found[lane] for lane in line.lanes()}
    return numbers
