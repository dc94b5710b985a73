"""A program that uses its app, forks as a web server does that has loaded it, and goes on; run by test_forking.

Its parent enqueues in two threads and calls meanwhile, so that locks are held and threads run when it forks.
"""

import json
import os
import signal
import sys
import threading
import warnings

from perdure import App

warnings.filterwarnings("ignore", category=DeprecationWarning)  # a fork beside threads, as of 3.12
CHILDREN, ITEMS = 3, 20


def main(url: str) -> None:
    app = App(url)

    @app.stage
    def echo(item: object) -> object:
        return item

    pipe = app.pipeline("p", echo)
    pipe.enqueue({"n": 0})
    pipe.call({"n": 1}, wait_s=20)
    stop, done = threading.Event(), []
    busy = [threading.Thread(target=keep_enqueueing, args=(pipe, stop, done)) for _ in range(2)]
    for thread in busy:
        thread.start()
    children = []
    for _ in range(CHILDREN):
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # a lock that nobody lets go of would hold us for ever
            for n in range(ITEMS):
                pipe.enqueue({"child": n})
            pipe.call({"child": "call"}, wait_s=20)
            sys.exit(0)  # as usual, with everything that is done then
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    stop.set()
    for thread in busy:
        thread.join()
    pipe.enqueue({"n": 2})
    workers = app._session.opened.reader.workers()
    mine = [one for one in workers if one.name.endswith(f":{os.getpid()}")]
    print(
        json.dumps(
            {
                "ends": ends,
                "accepted": app._session.opened.reader.books().accepted,
                "busy": len(done),
                "my_row_lives": [one.dead_at is None for one in mine],
                "rows": len(workers),
            }
        )
    )
    app.close()


def keep_enqueueing(pipe, stop: threading.Event, done: list[str]) -> None:
    while not stop.is_set():
        done.append(pipe.enqueue({"busy": True}).id)


if __name__ == "__main__":
    main(sys.argv[1])
