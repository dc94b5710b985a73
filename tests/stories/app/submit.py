"""A process that submits a run and leaves: ``submit.py NAME COUNT [BACKLOG]``; says how much memory it took."""

import json
import re
import sys
from pathlib import Path

from batch import pipe

name, count = sys.argv[1], int(sys.argv[2])
backlog_max = int(sys.argv[3]) if len(sys.argv) > 3 else None
run = pipe.run(({"n": n} for n in range(count)), name=name, backlog_max=backlog_max)
# Not ru_maxrss, which begins with what the parent had before it became this program.
highest = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
print(
    json.dumps(
        {
            "rss_mib": int(highest[1]) / 1024,
            "created": run.fed.created,
            "known": run.fed.known,
            "whole": run.fed.whole,
        }
    )
)
