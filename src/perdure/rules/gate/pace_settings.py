"""The numbers of a pace, and what they are for one of several workers."""

from dataclasses import dataclass
from math import sqrt

from perdure.model.nouns import replace
from perdure.rules.field_checks import number, whole_number

MEASURE_S_MAX = 3_600.0  # an hour ago the upstream was another
REST_S_MAX = 16.0
_WAVE_TIMES_MIN = 2.0  # with less a slow start would not get beyond half of its calls


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """The knobs of a pace, for a simulation to turn.

    ``still_times``: after a limit the rate stays for so many times the pause that was asked for.
    ``measure_s``: what is that old weighs 1/e. ``burst_s``: how much of the rate is saved up while
    nobody asks; it should cover the time between two looks. ``room_s_max``: room that is renewed
    later than this is a quota, not a rate, and may be used up. Less than ``rate_min_per_s`` is no
    measurement. ``find_s``: how soon the rate is back near the one that was refused. ``rest_s``: how long no
    call starts when most are refused and nobody says until when; twice as long each time.
    ``strain_share`` of timeouts is too much; ``slack_share`` more than noise is no limit. From
    ``wave_times`` admitted calls on a slow start is at most so many times as fast as they were, but for the half that
    begins at once.
    """

    start_calls: int = 1
    calls_max: int = 1_000
    rate_min_per_s: float = 0.01
    climb_per_s: float = 0.003
    quicken_s: float = 30.0
    still_times: float = 20.0
    measured_times_max: float = 2.0
    measure_s: float = 10.0
    burst_s: float = 0.25
    room_share: float = 0.5
    room_s_max: float = 60.0
    find_s: float = 4.0
    rest_s: float = 0.5
    strain_share: float = 0.5
    slack_share: float = 0.09
    wave_times: float = 6.0

    def __post_init__(self) -> None:
        whole_number("pace.calls_max", self.calls_max, 1, 1_000_000)
        whole_number("pace.start_calls", self.start_calls, 1, self.calls_max)
        number("pace.rate_min_per_s", self.rate_min_per_s, 0.001, 1_000.0)
        number("pace.climb_per_s", self.climb_per_s, 0.0, 1.0)
        number("pace.quicken_s", self.quicken_s, 0.1, 86_400.0)
        number("pace.still_times", self.still_times, 0.0, 1_000.0)
        number("pace.measured_times_max", self.measured_times_max, 1.0, 100.0)
        number("pace.measure_s", self.measure_s, 0.1, MEASURE_S_MAX)
        number("pace.burst_s", self.burst_s, 0.0, 60.0)
        number("pace.room_share", self.room_share, 0.0, 1.0)
        number("pace.room_s_max", self.room_s_max, 0.0, 86_400.0)
        number("pace.find_s", self.find_s, 0.1, 86_400.0)
        number("pace.rest_s", self.rest_s, 0.0, REST_S_MAX)
        number("pace.strain_share", self.strain_share, 0.0, 1.0)
        number("pace.slack_share", self.slack_share, 0.0, 1.0)
        number("pace.wave_times", self.wave_times, _WAVE_TIMES_MIN, 100.0)


def settings_for_one_of(settings: PaceSettings, workers: int) -> PaceSettings:
    """The settings of one of so many workers that call the same upstream.

    Each climbs on its own, so each climbs by its share: four workers that climb by 1 % a second meet
    the limit four times as often as one does. Each sees a share of the answers, so it looks back for
    longer, or it would take chance for a rate. In simulation both together nearly halve the waste of four. What
    was measured for longer is further behind a start, and all start at once, so each stays nearer to what it measured.
    """
    workers = max(workers, 1)
    return replace(
        settings,
        climb_per_s=settings.climb_per_s / workers,
        measure_s=min(settings.measure_s * sqrt(workers), MEASURE_S_MAX),
        wave_times=max(settings.wave_times / sqrt(workers), _WAVE_TIMES_MIN),
    )
