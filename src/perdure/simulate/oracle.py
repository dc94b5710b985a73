"""The bound: what a scheduler needs that knows the upstream's state and limits at every moment.

It starts a call the moment one would be admitted, keeps as many in flight as the fleet can, and never
meets an outage or a limit. Faults that strike single calls it cannot foresee: such a call is made
again at once. In a fair scene its drain is the same; order does not change how long all of it takes.
"""

from heapq import heappop, heappush

from perdure.simulate.books import Books
from perdure.simulate.replies import Form
from perdure.simulate.scene import Scene
from perdure.simulate.upstream import Upstream


def oracle(scene: Scene, seed: int) -> Books:
    """The books of the all-knowing scheduler."""
    upstream, books = Upstream(scene.upstream, seed), Books(jobs=scene.jobs)
    batches = sorted(scene.batches, key=lambda one: one.at_s)
    # when each call ends, how many more its job wants, and whether something is wrong with that
    flying: list[tuple[float, int, bool]] = []
    waiting: list[tuple[int, bool]] = []
    now_s, no = 0.0, 0
    while batches or waiting or flying:
        while batches and batches[0].at_s <= now_s:
            for _ in range(batches.pop(0).jobs):
                broken = scene.defect is not None and scene.defect.strikes(no)
                waiting.append((scene.defect.calls if broken and scene.defect else 1, broken))
                no += 1
        if waiting and len(flying) < scene.fleet.calls_max:
            free_s = upstream.free_at(now_s)
            if free_s <= now_s:
                reply = upstream.call(now_s)
                books.starts_s.append(now_s)
                books.answered(reply)
                left, broken = waiting.pop()
                left -= reply.form is Form.OK
                heappush(flying, (now_s + reply.took_s, left, broken))
                continue
            next_s = min(free_s, flying[0][0]) if flying else free_s
        elif flying:
            next_s = flying[0][0]
        else:
            next_s = batches[0].at_s
        if batches:
            next_s = min(next_s, batches[0].at_s)
        now_s = max(now_s, next_s)
        while flying and flying[0][0] <= now_s:
            ended_s, left, broken = heappop(flying)
            if left:
                waiting.append((left, broken))
            elif broken:
                books.gave_up(ended_s, defective=True)
            else:
                books.succeeded("all", ended_s)
    books.ended_s = now_s
    books.limit_per_s = upstream.limit_per_s
    return books
