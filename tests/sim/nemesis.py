"""The nemesis: kills, freezes, outages and orders to stop, at random times, until the chaos ends."""

from collections.abc import Callable

from tests.sim.hosts import Host
from tests.sim.process import Kernel, Process
from tests.sim.remote import Wire
from tests.sim.swarm import Setup
from tests.sim.world import World


class Nemesis:
    """Strikes hosts and the store."""

    def __init__(
        self, world: World, setup: Setup, kernel: Kernel, wire: Wire, hosts: list[Host]
    ) -> None:
        self._world = world
        self._setup = setup
        self._kernel = kernel
        self._wire = wire
        self._hosts = hosts
        verbs: dict[str, Callable[[Host], bool]] = {
            "kill_child": self._kill_child,
            "kill_host": self._kill_host,
            "kill_supervisor": self._kill_supervisor,
            "freeze_child": self._freeze_child,
            "freeze_host": self._freeze_host,
            "freeze_supervisor": self._freeze_supervisor,
            "store_away": self._store_away,
            "store_full": self._store_full,
            "drain": self._drain,
            "drain_twice": self._drain_twice,
            "clock_jump": lambda host: host.clock.jump(),
        }
        for kind, rate in setup.strikes.items():
            if kind in verbs:
                self._plan(kind, rate, verbs[kind])

    def _plan(self, kind: str, rate: float, verb: Callable[[Host], bool]) -> None:
        def strike() -> None:
            if not self._world.chaos:
                return
            if verb(self._world.rng.choice(self._hosts)):
                self._world.struck[kind] += 1
                self._world.history.note(self._world.now_us, "nemesis", kind)
            self._plan(kind, rate, verb)

        self._world.after(self._world.rng.expovariate(rate), strike)

    def heal(self) -> None:
        """No more faults, and what was struck goes on."""
        self._world.chaos = False
        self._wire.away_until_us = self._wire.full_until_us = 0
        for process in self._kernel.alive():
            self._kernel.thaw(process)

    def _kill_child(self, host: Host) -> bool:
        if not host.children:
            return False
        self._kernel.die(self._world.rng.choice(host.children), 9)
        return True

    def _kill_host(self, host: Host) -> bool:
        if host.process.dead:
            return False
        for child in host.children:
            self._kernel.die(child, 9)
        self._kernel.die(host.process, 9)
        return True

    def _kill_supervisor(self, host: Host) -> bool:
        if host.process.dead:
            return False
        self._kernel.die(host.process, 9)
        return True

    def _freeze_child(self, host: Host) -> bool:
        return bool(host.children) and self._freeze([self._world.rng.choice(host.children)])

    def _freeze_host(self, host: Host) -> bool:
        return self._freeze([host.process, *host.children])

    def _freeze_supervisor(self, host: Host) -> bool:
        return self._freeze([host.process])

    def _freeze(self, processes: list[Process]) -> bool:
        """For less than a lease, or for several."""
        struck = [one for one in processes if not one.dead and not one.frozen]
        for process in struck:
            self._kernel.freeze(process)
        leases = self._world.rng.choice((0.3, 0.9, 1.5, 3.0))
        self._world.after(self._setup.ttl_s * leases, lambda: self._thaw(struck))
        return bool(struck)

    def _thaw(self, processes: list[Process]) -> None:
        for process in processes:
            self._kernel.thaw(process)

    def _store_away(self, host: Host) -> bool:
        if self._wire.away:
            return False
        leases = self._world.rng.choice((0.1, self._world.rng.uniform(0.3, 1.2), 3.0))
        self._wire.away_until_us = self._world.now_us + round(self._setup.ttl_s * leases * 1e6)
        return True

    def _store_full(self, host: Host) -> bool:
        leases = self._world.rng.choice((0.2, 0.8, 2.0))
        self._wire.full_until_us = self._world.now_us + round(self._setup.ttl_s * leases * 1e6)
        return True

    def _drain(self, host: Host) -> bool:
        if host.process.dead or host.supervisor is None:
            return False
        self._kernel.kill(host.process.pid, 15)
        return True

    def _drain_twice(self, host: Host) -> bool:
        again_s = self._world.rng.uniform(0.0, 2.0)
        process = host.process
        self._world.after(again_s, lambda: self._kernel.kill(process.pid, 15), process)
        return self._drain(host)
