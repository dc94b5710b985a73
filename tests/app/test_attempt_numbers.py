"""One number for an attempt: the stage, the log and whoever looks at the job say the same."""

from perdure import Backoff, Policy, Rule, Snooze, StageError

QUICK = Policy(
    "quick",
    attempts_max=3,
    otherwise=Rule("retry"),
    rules={"rate_limited": Rule("wait")},
    backoff=Backoff("fixed", 0.01),
)


def test_waits_and_snoozes_raise_it_and_leave_what_is_left(app):
    seen = []

    @app.stage(policy=QUICK)
    def ask(item, context):
        seen.append((context.attempt, context.attempts_left))
        match context.attempt:
            case 1:
                raise StageError("rate_limited", "slow down")
            case 2:
                return Snooze(0)
            case 3:
                raise OSError("reset")
        return context.attempt

    pipe = app.pipeline("p", ask)
    with app.working(poll_s=0.05):
        job = pipe.enqueue(1)
        assert job.result(wait_s=60) == 4
    assert seen == [(1, 2), (2, 2), (3, 2), (4, 1)]
    assert [(one.number, one.status.value) for one in job.attempts()] == [
        (1, "waiting"),
        (2, "waiting"),
        (3, "retrying"),
        (4, "success"),
    ]
