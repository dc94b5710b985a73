"""What Perdure is told: to call the gateway once, by which policy, and what stands behind it.

The stage asks and raises what it meets. Which code is tried again, when, by whom and how often is not in here: it is in the presets
`gateway-worker`, `gateway-costly` and `gateway-sync`, which read the gateway's nine codes.

Each provider has a pipeline and a gate of its own, so that a rate limit of one holds nobody else's work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from perdure import Alias, App, Context, OutputInvalid, Pipeline, Setting, Settings, load_settings

from .answers import new_client
from .providers import NAMES, PROVIDERS, names_in
from .schemas import Ask, Generated

GATEWAY_URL = Setting("gateway_url", str, "", "URL", "Where the gateway is.")
# The gateway gives up on its provider earlier.
TIMEOUT_S = Setting("call_timeout_s", float, 60.0, "seconds", "For one call of it.", 0.001, 3_600)
WAIT_S = Setting("wait_s", float, 15.0, "seconds", "For a user who waits.", 0.001, 3_600)
POLICIES = {False: "gateway-worker", True: "gateway-costly"}  # by whether it is costly


def read_settings() -> Settings:
    """The settings of the environment; a `ConfigError` names what is wrong."""
    where = Alias(
        GATEWAY_URL, variable="AI_GATEWAY_URL", needed=True, begins=("http://", "https://")
    )
    timeout = Alias(TIMEOUT_S, variable="AI_GATEWAY_TIMEOUT_MS", unit="ms")
    wait = Alias(WAIT_S, variable="AI_WAIT_MS", unit="ms")
    settings = load_settings([NAMES, where, timeout, wait])
    names_in(settings[PROVIDERS])
    return settings


@dataclass(frozen=True)
class Texts:
    """The declared application: a pipeline for each provider, and one for its costly tasks."""

    app: App
    pipelines: Mapping[tuple[str, bool], Pipeline]

    def pipeline_of(self, ask: Ask) -> Pipeline | None:
        """Where a request goes; None if nobody has such a provider."""
        name = ask.provider or next(iter(self.pipelines))[0]
        return self.pipelines.get((name, ask.costly))


def make_texts(settings: Settings) -> Texts:
    """Declare everything. Nothing is connected to before it is used."""
    app = App(settings=settings)
    pipelines = {}
    for provider in names_in(settings[PROVIDERS]):
        for costly, policy in POLICIES.items():

            @app.stage(
                name="costly" if costly else "text",
                policy=policy,
                upstream=f"ai:{provider}",
                timeout_s=settings[TIMEOUT_S],
            )
            async def generate(item: Ask, context: Context) -> Generated:
                return await call_gateway(settings[GATEWAY_URL], item, context)

            name = f"{provider}-costly" if costly else provider
            pipelines[provider, costly] = app.pipeline(name, generate, sync_policy="gateway-sync")
    return Texts(app, pipelines)


async def call_gateway(url: str, item: Ask, context: Context) -> Generated:
    """One call. An answer that is no text is raised as it came, and its code is read from it."""
    async with new_client(timeout=context.time_left_s()) as client:
        answer = await client.post(
            f"{url.rstrip('/')}/v1/ai/generate-text",
            content=msgspec.json.encode(item),
            headers={"x-request-id": context.request_id},
        )
    answer.raise_for_status()
    try:
        generated = msgspec.json.decode(answer.content, type=Generated)
    except msgspec.MsgspecError as wrong:
        raise OutputInvalid(f"the gateway's answer is no text: {wrong}") from None
    if not generated.cached:
        used = generated.usage
        context.usage(tokens_in=used.tokens_in, tokens_out=used.tokens_out)
    return generated
