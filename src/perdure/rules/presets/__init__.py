"""Named policies: one of our own, and each of the five designs to the letter."""

from perdure.model.errors import UnknownName
from perdure.rules.gate.gate import GateSettings, basic_gate
from perdure.rules.policy import NAMED, Policy
from perdure.rules.presets.converter import CONVERTER
from perdure.rules.presets.datasets import DATASETS, DATASETS_LLM, DATASETS_ONCE
from perdure.rules.presets.gateway import GATEWAY_COSTLY, GATEWAY_SYNC, GATEWAY_WORKER
from perdure.rules.presets.preset import Preset
from perdure.rules.presets.reports import REPORTS
from perdure.rules.presets.standard import STANDARD
from perdure.rules.presets.verifier import VERIFIER

PRESETS: dict[str, Preset] = {
    one.policy.name: one
    for one in (
        STANDARD,
        REPORTS,
        CONVERTER,
        DATASETS,
        DATASETS_LLM,
        DATASETS_ONCE,
        VERIFIER,
        GATEWAY_WORKER,
        GATEWAY_COSTLY,
        GATEWAY_SYNC,
    )
}

NAMED.update({name: one.policy for name, one in PRESETS.items()})


def preset(name: str) -> Policy:
    """The policy of that name."""
    try:
        return PRESETS[name].policy
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise UnknownName(f"no policy preset {name!r}; one of: {known}") from None


def gate_for(policy: Policy) -> GateSettings:
    """The gate that goes with a policy where nobody has declared one: the basic breaker for `converter`."""
    return basic_gate() if policy.name == "converter" else GateSettings()
