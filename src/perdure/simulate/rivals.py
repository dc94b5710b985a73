"""What others do: every job retries for itself, by its own clock, and nobody tells anybody.

The delays are those of the named schemes; none of them gives up except where its name says so. The
fleet has the same number of calls in flight, a job that waits takes up no slot, and there is no time
between a claim and its call: all of it in their favour.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from perdure.rules.backoff import Backoff, Curve, Jitter, Spread, base_delay_s, jittered_s
from perdure.simulate.replies import Form
from perdure.simulate.run_history import RunHistory
from perdure.simulate.scene import Scene
from perdure.simulate.upstream import SimulatedUpstream

_EARLY_S = 1e-5
_SDK_HINT_S_MAX = 60.0  # told to wait for longer, the OpenAI client does not listen

# (failures, the last delay, the hint, chance) → the delay
Delay = Callable[[int, float, float | None, float], float]


@dataclass(frozen=True, slots=True)
class RivalStrategy:
    """A scheme of delays; ``tries`` None never gives up."""

    name: str
    title: str
    delay: Delay
    tries: int | None = None


def _by_curve(backoff: Backoff, jitter: Jitter) -> Delay:
    steps_s = [base_delay_s(backoff, n) for n in range(1, 12)]

    def delay(failures: int, last_s: float, hint_s: float | None, chance: float) -> float:
        return jittered_s(jitter, steps_s[min(failures, 11) - 1], chance)

    return delay


_DOUBLING = Backoff(Curve.EXPONENTIAL, base_s=1.0, factor=2.0, cap_s=60.0)
_NONE, _FULL = Jitter(Spread.NONE), Jitter(Spread.FULL)
_full = _by_curve(_DOUBLING, _FULL)
_half = _by_curve(_DOUBLING, _NONE)
_sdk_own = _by_curve(Backoff(Curve.EXPONENTIAL, base_s=0.5, factor=2.0, cap_s=8.0), _NONE)


def _equal(failures: int, last_s: float, hint_s: float | None, chance: float) -> float:
    return _half(failures, last_s, hint_s, chance) * (0.5 + 0.5 * chance)


def _decorrelate(failures: int, last_s: float, hint_s: float | None, chance: float) -> float:
    return min(60.0, 1.0 + (max(last_s, 1.0) * 3.0 - 1.0) * chance)


def _sdk(failures: int, last_s: float, hint_s: float | None, chance: float) -> float:
    if hint_s is not None and 0 < hint_s <= _SDK_HINT_S_MAX:
        return hint_s
    return _sdk_own(failures, last_s, hint_s, chance) * (1.0 - 0.25 * chance)


def _exact(failures: int, last_s: float, hint_s: float | None, chance: float) -> float:
    return _full(failures, last_s, hint_s, chance) if hint_s is None else hint_s


def _floor(failures: int, last_s: float, hint_s: float | None, chance: float) -> float:
    own_s = _full(failures, last_s, hint_s, chance)
    return own_s if hint_s is None else max(own_s, hint_s)


RIVALS: dict[str, RivalStrategy] = {
    one.name: one
    for one in (
        RivalStrategy("fixed", "fixed 5 s", _by_curve(Backoff(Curve.FIXED, base_s=5.0), _NONE)),
        RivalStrategy("fixed-full", "fixed 5 s, full jitter", _by_curve(Backoff(Curve.FIXED, base_s=5.0), _FULL)),
        RivalStrategy("expo", "exponential 1→60 s, no jitter", _by_curve(_DOUBLING, _NONE)),
        RivalStrategy("expo-25", "exponential, ±25 %", _by_curve(_DOUBLING, Jitter(ratio=0.25))),
        RivalStrategy("expo-equal", "exponential, equal jitter", _equal),
        RivalStrategy("expo-full", "exponential, full jitter", _full),
        RivalStrategy("decorrelated", "decorrelated jitter", _decorrelate),
        RivalStrategy("sdk", "SDK style 0.5→8 s, never giving up", _sdk),
        RivalStrategy("sdk-3", "SDK as shipped: three tries", _sdk, tries=3),
        RivalStrategy("hint-exact", "hint used exactly, per job", _exact),
        RivalStrategy("hint-floor", "hint as a floor, full jitter", _floor),
    )
}  # fmt: skip


class _Alone:
    """A job that retries for itself."""

    __slots__ = ("arrived_s", "failures", "last_s", "no", "owner", "told_s")

    def __init__(self, no: int, owner: str, arrived_s: float) -> None:
        self.no, self.owner, self.arrived_s = no, owner, arrived_s
        self.failures, self.last_s, self.told_s = 0, 0.0, 0.0


class Melee:
    """One run of a scene in which every job retries by itself."""

    def __init__(self, scene: Scene, rival: RivalStrategy, seed: int) -> None:
        self._scene, self._rival = scene, rival
        self._chance = Random(f"melee {seed}").random
        self._upstream = SimulatedUpstream(scene.upstream, seed)
        self.history = RunHistory(jobs=scene.jobs)
        self._ready: deque[_Alone] = deque()
        # (when, number, job, the form of the answer or None for a job that is due)
        self._events: list[tuple[float, int, _Alone, Form | None, float | None]] = []
        self._made = 0
        self._free = scene.fleet.calls_max
        self._left = {one.owner: 0 for one in scene.batches}
        self._jobs_left = scene.jobs

    def run(self) -> RunHistory:
        """Everything, until all jobs have ended or time is up."""
        scene, history, events = self._scene, self.history, self._events
        number = 0
        for batch in scene.batches:
            self._left[batch.owner] += batch.jobs
            for _ in range(batch.jobs):
                self._put(batch.at_s, _Alone(number, batch.owner, batch.at_s))
                number += 1
        now_s = 0.0
        while events and not self._over():
            now_s, _, job, form, hint_s = heappop(events)
            if now_s > scene.horizon_s:
                break
            if form is None:
                self._ready.append(job)
            else:
                self._free += 1
                self._end(job, form, hint_s, now_s)
            while self._free and self._ready:
                self._start(self._ready.popleft(), now_s)
            history.add_look(now_s, self._jobs_left - (scene.fleet.calls_max - self._free))
        history.ended_s = min(now_s, scene.horizon_s)
        history.limit_per_s = self._upstream.limit_per_s
        return history

    def _over(self) -> bool:
        stop = self._scene.stop_owner
        return stop is not None and self._left[stop] == 0

    def _leave(self, job: _Alone) -> None:
        self._left[job.owner] -= 1
        self._jobs_left -= 1

    def _put(
        self, when_s: float, job: _Alone, form: Form | None = None, hint_s: float | None = None
    ) -> None:
        self._made += 1
        heappush(self._events, (when_s, self._made, job, form, hint_s))

    def _start(self, job: _Alone, now_s: float) -> None:
        history = self.history
        if not job.failures:
            history.waited_s.setdefault(job.owner, []).append(now_s - job.arrived_s)
        history.early += now_s < job.told_s - _EARLY_S
        history.starts_s.append(now_s)
        reply = self._upstream.call(now_s)
        self._free -= 1
        history.add_answer(reply)
        self._put(now_s + reply.took_s, job, reply.form, reply.hint_s)

    def _end(self, job: _Alone, form: Form, hint_s: float | None, now_s: float) -> None:
        if form is Form.OK:
            self.history.add_success(job.owner, now_s)
            self._leave(job)
            return
        job.failures += 1
        if self._rival.tries is not None and job.failures >= self._rival.tries:
            self.history.gave_up(now_s, defective=False)
            self._leave(job)
            return
        job.told_s = now_s + (hint_s or 0.0)
        job.last_s = self._rival.delay(job.failures, job.last_s, hint_s, self._chance())
        self._put(now_s + job.last_s, job)
