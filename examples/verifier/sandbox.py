"""Run a program within limits: ``python -I sandbox.py PARENT MEMORY_BYTES PROGRAM ARGUMENT…``.

It may not outlive whoever started it, nor take more memory than it is given. What it does within these limits, to
itself as well, is its own business. A script, which nobody imports.
"""

import ctypes
import os
import resource
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1

parent, memory_bytes, *program = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(f"process {parent} has ended already")
resource.setrlimit(resource.RLIMIT_AS, (int(memory_bytes),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.argv = program
runpy.run_path(program[0], run_name="__main__")
