"""Which rule of a policy speaks about a failure."""

from perdure.model.kinds import Kind
from perdure.model.verdicts import Failure
from perdure.rules.policy import FAIL, RETRY, RULED, Policy, Rule


def rule_for(policy: Policy, failure: Failure) -> tuple[Rule, str]:
    """The rule, and its name as it stands in the policy."""
    if failure.kind is Kind.WORKER_LOST:
        return RETRY, "crashes_max"
    rule = policy.rules.get(failure.kind)
    if rule is not None:
        return rule, f"rules.{failure.kind.value}"
    if policy.retriable is None:
        return policy.otherwise, "otherwise"
    return (RETRY if is_listed(policy, failure) else FAIL), "retriable"


def kinds_left(policy: Policy) -> tuple[Kind, ...]:
    """The kinds that no rule and no list of the policy speaks about, and ``otherwise`` answers."""
    if policy.retriable is not None:
        return ()
    return tuple(kind for kind in RULED if kind not in policy.rules)


def kinds_unlisted(policy: Policy) -> tuple[Kind, ...]:
    """The kinds without a rule that the policy's ``retriable`` does not name, and that fail because of it."""
    names = policy.retriable
    if names is None or names == "all":
        return ()
    return tuple(kind for kind in RULED if kind not in policy.rules and kind.value not in names)


def is_listed(policy: Policy, failure: Failure) -> bool:
    """Whether the policy's list names the failure.

    A status is looked up as a number and decides, except that 408 and 425 are timeouts; without
    one, the exception's names and the kind are looked up. Where the upstream's own code has named the
    kind, only that is looked up.
    """
    names = policy.retriable
    if names is None or isinstance(names, str):
        return names == "all"
    if failure.by_code:
        return failure.kind.value in names
    by_name = any(_is_named(entry, failure.names) for entry in names if isinstance(entry, str))
    if by_name or failure.status in names:
        return True
    counts_by_status = any(isinstance(entry, int) for entry in names)
    refused = failure.status is not None and failure.status >= 400  # 2xx: an error in the body
    if refused and counts_by_status and failure.kind is not Kind.TIMEOUT:
        return False
    return failure.kind.value in names


def _is_named(entry: str, names: tuple[str, ...]) -> bool:
    return any(name == entry or name.rpartition(".")[2] == entry for name in names)
