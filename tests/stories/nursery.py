"""A process that has everything imported and forks children to be crashed, one after the other.

    python -m tests.stories.nursery

Each line of its standard input is a JSON list: ``module:function`` and its arguments. For each it says the
child's process id, and, when that has ended, its exit status as `os.waitstatus_to_exitcode` has it. A child
stops itself before it begins, so that a tracer can be put on it, and lets anyone trace it (Yama).
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def bear(called: str, *arguments: object) -> None:
    """Be a child: wait for the tracer, call, and end without any tidying up."""
    module, _, function = called.partition(":")
    call = getattr(importlib.import_module(module), function)
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        call(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def main() -> None:
    for line in sys.stdin:
        called, *arguments = json.loads(line)
        importlib.import_module(called.partition(":")[0])
        child = os.fork()
        if child == 0:
            bear(called, *arguments)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
