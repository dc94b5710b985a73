"""What the tests of the simulator share: small scenes, and runs of them."""

from perdure.rules.gate.gate import GateSettings
from perdure.rules.presets import preset
from perdure.simulate.play import Play
from perdure.simulate.scene import Batch, Fleet, Scene
from perdure.simulate.upstream import UpstreamModel

STANDARD = preset("standard")
GATE = GateSettings()


def scene(jobs=300, *, horizon_s=2_000.0, batches=None, fleet=None, upstream=None, **more):
    return Scene(
        "small",
        "a small scene",
        upstream or UpstreamModel(rate_per_s=10.0, burst=10.0),
        batches or (Batch("all", jobs),),
        horizon_s,
        fleet or Fleet(workers=2, concurrency=25),
        **more,
    )


def down(outage_s=30.0, **more):
    return scene(upstream=UpstreamModel(outages_s=((0.0, outage_s),)), **more)


def played(one, *, seed=1, gate=GATE, policy=STANDARD, cls=Play, **more):
    return cls(one, policy, gate, seed, **more).run()
