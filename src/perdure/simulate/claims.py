"""Two common claims, checked: what jitter does to 429s in a storm, and exponential against fixed."""

from collections.abc import Iterator, Mapping

from perdure.simulate.measure import Measured, Row

_JITTERS = {
    "expo-25": "±25 %",
    "expo-equal": "equal",
    "expo-full": "full",
    "decorrelated": "decorrelated",
}
_STORMS = ("W1", "W2a", "W2b", "W4")


def jitter_lines(rows: Mapping[str, Row]) -> Iterator[str]:
    """429s, wasted calls and the peak with each jitter, against the same exponential without."""
    yield (
        "| scenario | against exponential without jitter | " + " | ".join(_JITTERS.values()) + " |"
    )
    yield "|---|---|" + "---|" * len(_JITTERS)
    for name in (one for one in _STORMS if one in rows):
        row = rows[name]
        plain = row.of("expo")
        others = [row.of(jitter) for jitter in _JITTERS]
        for title, value in (("429s", _limited), ("wasted calls", _waste), ("peak", _peak)):
            cells = [change(value(one), value(plain)) for one in others]
            yield f"| {name} | {title} | {' | '.join(cells)} |"


def fixed_lines(rows: Mapping[str, Row]) -> Iterator[str]:
    """Wasted calls of the exponential schemes against a fixed delay of 5 s, plain and with full jitter."""
    yield "| scenario | against | exponential, no jitter | exponential, ±25 % | exponential, full jitter |"
    yield "|---|---|---|---|---|"
    for name in (one for one in _STORMS if one in rows):
        row = rows[name]
        for fixed in ("fixed", "fixed-full"):
            against = row.of(fixed)
            cells = [
                change(row.of(one).waste, against.waste) for one in ("expo", "expo-25", "expo-full")
            ]
            yield f"| {name} | {against.title} | {' | '.join(cells)} |"


def change(value: float, against: float) -> str:
    """By how much a number is more or less than another."""
    if not against:
        return "–"
    share = 100.0 * (value / against - 1.0)
    return f"{share:+.0f} %".replace("-", "−").replace("+0", "±0").replace("−0 ", "±0 ")


def _limited(one: Measured) -> float:
    return one.limited


def _waste(one: Measured) -> float:
    return one.waste


def _peak(one: Measured) -> float:
    return one.peak or 0.0
