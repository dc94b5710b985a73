"""The weather of the upstreams: outages, limits, partial failures and unpaid bills, until the chaos ends.

It alone knows what a call was really answered; the judge of the gates compares with it what was made of that.
"""

from perdure.model.errors import StageError
from tests.sim.outside import Outside
from tests.sim.world import World


class Refused(Exception):
    """As an HTTP client raises it."""

    def __init__(self, status_code: int, retry_after_s: float | None = None) -> None:
        self.status_code = status_code
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        self.wait_s = retry_after_s
        super().__init__(f"answered {status_code}")


class Weather:
    """Which trouble each upstream has, and until when."""

    def __init__(self, world: World, outside: Outside, ttl_s: float) -> None:
        self._world = world
        self._names = [one.name for one in outside.upstreams]
        self._ttl_s = ttl_s
        self._until_us: dict[tuple[str, str], int] = {}
        self._share = 0.5  # of the calls to an upstream that partly fails
        for kind, rate in outside.troubles.items():
            self._plan(kind, rate)

    def _plan(self, kind: str, rate: float) -> None:
        def begin() -> None:
            if not self._world.chaos:
                return
            name = self._world.rng.choice(self._names)
            lasts_s = self._ttl_s * self._world.rng.choice((0.2, 1.0, 3.0))
            self._until_us[name, kind] = self._world.now_us + round(lasts_s * 1e6)
            if kind == "upstream_partial":
                self._share = self._world.rng.choice((0.1, 0.5))
            self._world.history.note(self._world.now_us, "weather", kind, name, f"{lasts_s:g} s")
            self._plan(kind, rate)

        self._world.after(self._world.rng.expovariate(rate), begin)

    def answer(self, name: str) -> Exception | None:
        """What a call to that upstream is answered now; None when it is well."""
        found = [kind for kind in _ANSWERS if self._has(name, kind)]
        if not found:
            return None
        self._world.struck[found[0]] += 1
        return _ANSWERS[found[0]](self)

    def _has(self, name: str, kind: str) -> bool:
        if not self._world.chaos or self._world.now_us >= self._until_us.get((name, kind), 0):
            return False
        return kind != "upstream_partial" or self._world.rng.random() < self._share

    def _outage(self) -> Exception:
        wait_s = self._world.rng.choice((None, None, 2.0, 15.0))
        return self._world.rng.choice(
            (ConnectionResetError("gone"), Refused(503, wait_s), Refused(500))
        )

    def _limit(self) -> Exception:
        return Refused(429, self._world.rng.choice((None, 1.0, 3.0, 20.0)))

    def _partial(self) -> Exception:
        return self._world.rng.choice((Refused(502), Refused(429, 3.0)))

    def _billing(self) -> Exception:
        return StageError("billing", "no credit", wait_s=self._world.rng.choice((None, 5.0)))


_ANSWERS = {
    "upstream_billing": Weather._billing,
    "upstream_outage": Weather._outage,
    "upstream_limit": Weather._limit,
    "upstream_partial": Weather._partial,
}
