"""The gate that goes with a policy where nobody has declared one."""

from perdure.rules.gate.gate import GateSettings, basic_gate
from perdure.rules.policy import Policy


def gate_for(policy: Policy) -> GateSettings:
    """The hold-queue breaker of [001] for `converter`, else the standard one."""
    return basic_gate() if policy.name == "converter" else GateSettings()
