"""The upkeep of a worker, put together from a session and the settings in force."""

import random
from collections.abc import Callable

from perdure.app.session.session import Session
from perdure.config import Config
from perdure.engine.clock import SystemClock
from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.rounds import Upkeep, UpkeepSettings
from perdure.model.operations import Retention
from perdure.stores.opening import Opened


def gatekeeper_of(
    session: Session, opened: Opened, catalogue: Catalogue, worker: int
) -> Gatekeeper:
    """Who keeps the gates of the upstreams that the served stages name."""
    return Gatekeeper(
        opened.store,
        opened.control,
        session.upstreams.all(catalogue.stages()),
        worker,
        catalogue=catalogue,
        clock=SystemClock(),
        chance=random.Random(),
        observers=session.observers,
    )


def upkeep_of(
    session: Session,
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
        schedules=tuple(session.schedules.values()),
        clock=SystemClock(),
        chance=random.Random(),
        observers=session.observers,
        gates=gates,
        bulks=bulks,
    )
