"""What Perdure is told: the gateway and its breaker, the policy, the stage that converts, and the sweep.

A job is one file of one owner. Its item, ``{"upload": …}``, names the PDF, and its result, ``{"xml": …}``, the XML. Both
files carry the upload's id; the XML's name also has the token of the attempt, so two attempts never write the same file, and
the one that a job's record names is the only one that is ever served.
"""

from dataclasses import dataclass, replace
from io import BytesIO

import httpx2
from lxml import etree

from perdure import (
    App,
    Backoff,
    Context,
    Jitter,
    Pipeline,
    Policy,
    Settings,
    StageError,
    basic_gate,
)

from . import settings as known
from .files import Files, write_atomically

GATEWAY = "gateway"  # the upstream, and its gate


@dataclass(frozen=True)
class Converter:
    """The app, its two pipelines, and the rows and files that they work on."""

    app: App
    conversions: Pipeline
    sweeps: Pipeline
    files: Files
    client: httpx2.Client

    def close(self) -> None:
        """Disconnect from database and gateway."""
        self.app.close()
        self.client.close()


def policy_of(settings: Settings) -> Policy:
    """The preset of the design document with the numbers of the environment; the gateway's own codes are read, too."""
    preset = Policy.based_on("converter", name="converter-from-environment")
    return Policy.based_on(
        preset,
        name=preset.name,
        attempts_max=settings[known.ATTEMPTS_MAX],
        backoff=Backoff("exponential", base_s=settings[known.BASE_DELAY_S], factor=2.0, cap_s=None),
        jitter=Jitter("additive", add_s_max=settings[known.JITTER_S_MAX]),
        vocabulary=replace(preset.vocabulary, wire=True),
    )


def make_converter(settings: Settings) -> Converter:
    """Declare everything. Nothing is connected to before it is used."""
    app, files = App(settings=settings), Files(settings)
    # A connection that is kept may be closed by the other side just when a call is sent: each call makes its own.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    client = httpx2.Client(base_url=settings[known.GATEWAY_URL], limits=limits)

    def is_gateway_well() -> None:
        client.get("/healthz", timeout=5.0).raise_for_status()

    app.upstream(
        GATEWAY,
        gate=basic_gate(
            window=settings[known.CIRCUIT_WINDOW],
            fail_threshold=settings[known.CIRCUIT_FAIL_THRESHOLD],
            cooldown_ms=settings[known.CIRCUIT_COOLDOWN_S] * 1_000,
        ),
        health=is_gateway_well,
        health_timeout_s=10.0,
    )

    @app.stage(
        policy=policy_of(settings), upstream=GATEWAY, timeout_s=settings[known.GATEWAY_TIMEOUT_S]
    )
    def convert(item: dict[str, str], context: Context) -> dict[str, str]:
        upload = item["upload"]
        try:
            pdf = files.source(upload).read_bytes()
        except OSError as wrong:  # both kinds are not held against the gateway, and one is final
            kind = "resource_exhausted" if files.is_kept(upload) else "not_found"
            raise StageError(kind, f"no PDF was read: {wrong}", public_code="IO_ERROR") from wrong
        answer = client.post(
            "/process",
            content=pdf,
            headers={"content-type": "application/pdf", "x-request-id": context.request_id},
            timeout=context.time_left_s(),  # GATEWAY_TIMEOUT_MS is the one timeout
        )
        answer.raise_for_status()
        check_xml(answer.content)
        name = f"{upload}.{context.token}.xml"
        try:
            write_atomically(files.results / name, BytesIO(answer.content))
        except OSError as wrong:
            raise StageError("resource_exhausted", f"no XML was written: {wrong}") from wrong
        return {"xml": name}

    @app.stage
    def sweep(_item: None) -> dict[str, int]:
        return files.sweep()

    conversions = app.pipeline(
        "conversions", convert, source_exists=lambda item: files.is_kept(item["upload"])
    )
    sweeps = app.pipeline("sweeps", sweep, queue="sweeps")
    app.every("10m", sweeps)
    return Converter(app, conversions, sweeps, files, client)


def check_xml(content: bytes) -> None:
    """What the gateway sends is XML, whole, and a document; anything else is no result."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as wrong:
        raise StageError("invalid_output", f"the gateway's answer is no XML: {wrong}") from None
    if root.tag != "document":
        raise StageError("invalid_output", f"the gateway's answer is a <{root.tag}>, no <document>")
