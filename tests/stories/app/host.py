"""A program of somebody's own that has a worker inside; it goes on until the file *stop* is there."""

import json
import sys
import time
from pathlib import Path

from work import app

from perdure.engine.upkeep import suspects
from perdure.observers.log import write_logs

suspects.LOOK_S, suspects.PATIENCE_S = 0.5, 2.0  # a story need not wait for as long as a person

write_logs(form="text", level="INFO")
with app.working(**json.loads(sys.argv[1])):
    Path(sys.argv[2]).touch()
    while not Path("stop").exists():
        time.sleep(0.02)
Path(f"{sys.argv[2]}-closed").touch()
app.close()
