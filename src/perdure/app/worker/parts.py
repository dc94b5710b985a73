"""The upkeep of a worker, put together from an app and the settings in force."""

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from perdure.config import Config
from perdure.engine.clock import SystemClock
from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.gates.upstreams import Upstreams
from perdure.engine.observe import Observers
from perdure.engine.operate.eligible import Check
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.rounds import Upkeep, UpkeepSettings
from perdure.engine.upkeep.schedules import Schedule
from perdure.model.jobs import Lane
from perdure.model.operations import Retention
from perdure.stores.opening import Opened


class Workplace(Protocol):
    """What the parts of a worker need of their App."""

    url: str
    observers: Observers
    upstreams: Upstreams

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes of all pipelines."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """All pipelines on their lanes."""
        ...

    @property
    def checks(self) -> Mapping[str, Check]:
        """Whether the source of an item exists, by pipeline."""
        ...

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """What is to be enqueued again and again."""
        ...


def gatekeeper_of(app: Workplace, opened: Opened, catalogue: Catalogue, worker: int) -> Gatekeeper:
    """Who keeps the gates of the upstreams that the served stages name."""
    return Gatekeeper(
        opened.store,
        opened.control,
        app.upstreams.all(catalogue.stages()),
        worker,
        catalogue=catalogue,
        clock=SystemClock(),
        chance=random.Random(),
        observers=app.observers,
    )


def upkeep_of(
    app: Workplace,
    opened: Opened,
    catalogue: Catalogue,
    worker: int,
    config: Config,
    *,
    gates: Gatekeeper,
    leaves_suspects: bool = False,
    bulks: Callable[[], None] | None = None,
) -> Upkeep:
    """The chores of one worker."""
    return Upkeep(
        opened,
        catalogue,
        worker,
        UpkeepSettings(
            Retention(
                succeeded_s=config.retain_succeeded_s,
                cancelled_s=config.retain_cancelled_s,
                discarded_s=config.retain_discarded_s,
            ),
            margin_s=max(config.overrun_s, config.grace_s + config.lease_ttl_s),
            patience_s=config.lease_ttl_s,
            leaves_suspects=leaves_suspects,
            changes_s=config.retain_changes_s,
        ),
        schedules=app.schedules,
        clock=SystemClock(),
        chance=random.Random(),
        observers=app.observers,
        gates=gates,
        bulks=bulks,
    )
