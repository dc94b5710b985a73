"""Failure kinds and policy presets: what may go wrong, and what is done about it."""

from collections.abc import Collection, Iterator

from tools.pages.text import Missing, facts, number, prose, seconds, table, yes

from perdure.model.kinds import GROUPS, KINDS, Kind, KindFacts
from perdure.model.verdicts import Failure
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread, base_delay_s, jittered_s
from perdure.rules.policy import Action, Policy, Rule
from perdure.rules.presets import PRESETS
from perdure.rules.presets.preset import Preset
from perdure.rules.rule_choice import rule_for
from perdure.rules.vocabulary import Vocabulary


def kinds_page() -> list[str]:
    lines = [
        "# Failure kinds",
        "",
        "What went wrong and whose fault it is.",
        "What is done about it is said by the stage's policy; see [presets](presets.md).",
        "A stage names a kind itself with `StageError(kind, message)`,",
        "and what users read about it [if need be](../howto-codes.md).",
        "What a kind is a sign of decides whether it counts for the [gate](../howto-gates.md) of an upstream:",
        "good is an answer, bad blames the upstream, and neither is left out.",
        "A kind `unknown` that the stage's own code raised is neither, and a result that cannot be stored is good.",
        "",
        "The rules of a policy may name a group. It stands for those of its kinds that have no rule of their own beside it:",
        "",
    ]
    lines += table(("group", "its kinds"), [(f"`{name}`", _links(GROUPS[name])) for name in GROUPS])
    left = [kind for kind in Kind if not any(kind in kinds for kinds in GROUPS.values())]
    lines += [f"In no group: {_links(left)}.", ""]
    for kind in Kind:
        known = KINDS[kind]
        lines += [f"## {kind.value}", "", known.sentence, ""]
        lines += facts(
            {
                "blame": known.blame.value,
                "class": known.failure_class.value,
                "a sign of its upstream": _sign(known),
                "a pause covers": f"the {known.scope.value}",
            }
        )
    return lines


def _sign(known: KindFacts) -> str:
    return (
        f"{known.sign.value}, good with an HTTP status"
        if known.proved_by_status
        else known.sign.value
    )


def _links(kinds: Collection[Kind]) -> str:
    return ", ".join(f"[{kind.value}](#{kind.value})" for kind in Kind if kind in kinds)


def presets_page() -> list[str]:
    lines = [
        "# Policy presets",
        "",
        'Policies with a name, as in `@app.stage(policy="standard")`.',
        "You write a policy of your own in Python, as a `perdure.Policy`, or in a file, with the same fields.",
        'A stage takes either: `@app.stage(policy=mine)`, or `@app.stage(policy="mine.toml")`; a file ends in `.toml` or `.json`.',
        "[Write a policy](../howto-policies.md) has every field.",
        "`perdure policy explain` says what a policy would do about a failure, and why.",
        "",
        "*Implements* lists what a preset carries out, by the ids of [rules](../rules.md), where each has a line:",
        "R1 and so on are what the five designs behind Perdure ask for, C1 and so on what was chosen where they disagree,",
        "D1 and so on their errors and gaps, mended.",
        "",
    ]
    for name, one in PRESETS.items():
        policy = one.policy
        lines += [f"## {name}", "", reason_of(one), ""]
        lines += [f"Implements {', '.join(map(_rule_link, one.implements))}.", ""]
        lines += table(("field", "value"), _numbers(policy))
        lines += ["What it does about each kind:", ""]
        lines += table(("kind", "code", "action", "at most", "class"), _rules(policy))
        lines += [f"The schedule it gives, jitter being {_spread(policy.jitter)}:", ""]
        lines += table(("after failure", "base", "with jitter", "all so far"), _schedule(policy))
    return lines


def reason_of(one: Preset) -> str:
    """The paragraph that says why a preset is as it is."""
    if not one.reason:
        raise Missing(f"preset {one.policy.name} gives no reason")
    return prose(one.reason)


def _rule_link(id_: str) -> str:
    return f"[{id_}](../rules.md#{id_.lower()})"


def _numbers(policy: Policy) -> list[tuple[str, str]]:
    return [
        ("version", str(policy.version)),
        ("attempts_max", f"{policy.attempts_max}, the first included"),
        ("waits_max", number(policy.waits_max)),
        ("wait_s_max", f"{seconds(policy.wait_s_max)} in all"),
        ("weak_share", _weak_share(policy)),
        ("crashes_max", number(policy.crashes_max)),
        ("snoozes_max", number(policy.snoozes_max)),
        ("backoff", _curve(policy.backoff)),
        ("jitter", _spread(policy.jitter)),
        ("hint", f"{policy.hint.mode.value}; the job fails if asked for over {_hint(policy)}"),
        ("profile", policy.profile.value),
        ("scope", f"limits count per {policy.scope.value}"),
        ("crash_is_failure", yes(policy.crash_is_failure)),
        ("vocabulary", _vocabulary(policy.vocabulary)),
    ]


def _weak_share(policy: Policy) -> str:
    if policy.weak_share is None:
        return "none: a failure counts, however weak the upstream is"
    return f"{policy.weak_share:.0%}: a failure of the upstream is a wait while so many of its latest calls fail"


def _vocabulary(words: Vocabulary) -> str:
    return f"{words.name}, spoken by the upstream too" if words.wire else words.name


def _hint(policy: Policy) -> str:
    return seconds(policy.hint.s_max)


def _curve(backoff: Backoff) -> str:
    if backoff.curve is Curve.SCHEDULE:
        return "schedule: " + ", ".join(seconds(step_s) for step_s in backoff.steps_s)
    factor = f", factor {backoff.factor:g}" if backoff.curve is Curve.EXPONENTIAL else ""
    cap = "no cap" if backoff.cap_s is None else f"at most {seconds(backoff.cap_s)} before jitter"
    return f"{backoff.curve.value} from {seconds(backoff.base_s)}{factor}, {cap}"


def _spread(jitter: Jitter) -> str:
    match jitter.spread:
        case Spread.PROPORTIONAL:
            return f"proportional, ± {jitter.ratio:.0%}"
        case Spread.ADDITIVE:
            return f"additive, up to {seconds(jitter.add_s_max)} more"
        case Spread.NONE | Spread.FULL:
            return jitter.spread.value


def _rules(policy: Policy) -> Iterator[tuple[str, str, str, str, str]]:
    for kind in Kind:
        rule, _ = rule_for(policy, Failure(kind, ""))
        link = f"[{kind.value}](kinds.md#{kind.value})"
        limit = _limit(policy, kind, rule)
        code = policy.vocabulary.code(kind)
        yield link, code, rule.action.value, limit, KINDS[kind].failure_class.value


def _limit(policy: Policy, kind: Kind, rule: Rule) -> str:
    if kind is Kind.WORKER_LOST:  # decided by the crashes alone, whatever its rule says
        return "1 crash" if policy.crashes_max == 1 else f"{policy.crashes_max} crashes"
    match rule.action:
        case Action.FAIL | Action.HAND_OVER:
            return "1 attempt"
        case Action.WAIT | Action.HOLD:
            return f"{policy.waits_max} waits"
        case Action.RETRY:
            return f"{rule.attempts_max or policy.attempts_max} attempts"


def _schedule(policy: Policy) -> Iterator[tuple[str, ...]]:
    low_s = high_s = 0.0
    for failure in range(1, policy.attempts_max):
        base_s = base_delay_s(policy.backoff, failure)
        least_s, most_s = (jittered_s(policy.jitter, base_s, chance) for chance in (0.0, 1.0))
        low_s, high_s = low_s + least_s, high_s + most_s
        yield str(failure), seconds(base_s), _span(least_s, most_s), _span(low_s, high_s)
    end = "it is handed over" if policy.exhausted is Action.HAND_OVER else "the job fails"
    yield str(policy.attempts_max), end, "", ""


def _span(low_s: float, high_s: float) -> str:
    return seconds(low_s) if low_s == high_s else f"{number(low_s)} to {seconds(high_s)}"
