"""What a pace knows of one thing that goes wrong: how often lately, and whether going slowly is of use."""

from datetime import datetime, timedelta
from math import exp

from msgspec import Struct

from perdure.model.nouns import replace

_LATEST = 1 / 20  # the weight of one call among the latest
_NOISE = 1 / 40  # the same for what is learned of noise from a call that went well
_CHANCE = 2.0  # times the noise may be met more often by chance; of hardly any noise that is little
_FADES = 0.98  # noise is forgotten with each call that goes well at another speed,
_PROVED = 3  # but slowly where it was met so often while the pace stood still:
_FADES_PROVED = 0.995
_SPELL = 0.15  # so much noise may be a spell; that is over
_LUCK = 0.01  # when so many calls in a row would pass by chance only once in a hundred times
_QUIET_S = 60.0  # without a fall for so long,
_FORGET_S = 5.0  # those before are forgotten: after so much more they weigh 1/e


class Trouble(Struct, frozen=True):
    """Its ``share`` of the latest calls, and how much of that is ``noise``: what stays when calls are fewer.

    The pace fell for it at ``fell_at``, and until ``still_until`` stands still, to see whether that is of use;
    it was met ``stood`` times meanwhile. ``luck`` is the chance that in a spell as many calls in a row went well as now.
    """

    share: float = 0.0
    noise: float = 0.0
    fell_at: datetime | None = None
    still_until: datetime | None = None
    luck: float = 1.0
    stood: int = 0

    @property
    def is_over(self) -> bool:
        """Whether there was a spell of it, and it would be a wonder if that still lasted."""
        return self.luck < _LUCK

    def after_call(self, met: bool, sent_at: datetime) -> "Trouble":
        """A call has ended, and met this or not."""
        share = self.share + (met - self.share) * _LATEST
        noise, stands = self.noise, self.stands(sent_at)
        spell = noise if noise >= _SPELL else 0.0
        luck = 1.0 if met else self.luck * (1.0 - spell)
        if stands:
            noise += (met - noise) * (_LATEST if met else _NOISE)
        elif not met:
            noise *= _FADES_PROVED if self.stood >= _PROVED else _FADES
        stood = self.stood + (met and stands)
        return replace(self, share=share, noise=noise, luck=luck, stood=stood)

    def stands(self, sent_at: datetime) -> bool:
        """Whether a call was sent after the pace fell, and before it rose again."""
        if self.fell_at is None or self.still_until is None:
            return False
        return self.fell_at <= sent_at < self.still_until

    def is_news(self, sent_at: datetime) -> bool:
        """Whether a call knew of the last fall when it was sent."""
        return self.fell_at is None or sent_at >= self.fell_at

    def share_lately(self, now: datetime) -> float:
        """Its share; at a crawl there are too few calls to forget it by, so after a minute time does it."""
        quiet_s = 0.0 if self.fell_at is None else max((now - self.fell_at).total_seconds(), 0.0)
        return self.share * exp(-max(quiet_s - _QUIET_S, 0.0) / _FORGET_S)

    def is_noise(self, slack_share: float) -> bool:
        """Whether it is not met more often than at a slower pace."""
        slack = min(slack_share, _CHANCE * self.noise)
        return self.noise > 0 and self.share <= self.noise + slack

    def after_fall(self, now: datetime, still_s: float) -> "Trouble":
        """The pace falls."""
        still_until = now + timedelta(seconds=still_s)
        return replace(self, fell_at=now, still_until=still_until, luck=1.0, stood=0)


CALM = Trouble()
