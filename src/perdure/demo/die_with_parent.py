"""Start a command that may not outlive its parent: ``python die_with_parent.py PARENT COMMAND...``.

The tour ends its workers whatever happens to it, but for one thing: being killed with SIGKILL
itself. On Linux the kernel then ends them, because they were started through this file.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie ourselves to our parent, then become the command."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit(f"die_with_parent: process {parent} has ended already")
    os.execv(command[0], command)  # noqa: S606 - the tour's own command


if __name__ == "__main__":
    main()
