"""The process of `model.py`: serve a model on a free port of the loopback until killed.

`python model_main.py FOLDER WEIGHTS`; the key is read from the folder, the address is written there once it answers.
"""

import sys
import threading
from pathlib import Path

KEY, ADDRESS = "key", "address"
SLOTS = 2
CONTEXT_TOKENS = 4_096  # of each slot


def serve(folder: Path, weights: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = ["smollm2"]
    params.n_ctx, params.n_parallel = SLOTS * CONTEXT_TOKENS, SLOTS
    # Its threads spin while they wait for one another: on two busy processors, two are ten times slower than one.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [(folder / KEY).read_text()]
    params.ui = False
    server = xllamacpp.Server(params)
    unfinished = folder / f"{ADDRESS}.part"
    unfinished.write_text(server.listening_address)
    unfinished.rename(folder / ADDRESS)
    threading.Event().wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
