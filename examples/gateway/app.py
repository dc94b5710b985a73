"""What Perdure is told: to call the gateway once, by which policy, and what stands behind it.

The stage asks and raises what it meets. Which code is tried again, when, by whom and how often is not in here: it is in the presets
`gateway-worker`, `gateway-costly` and `gateway-sync`, which read the gateway's nine codes.

Each provider has a pipeline and a gate of its own, so that a rate limit of one holds nobody else's work.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from perdure import App, ConfigError, Context, OutputInvalid, Pipeline

from .gateway import new_client
from .providers import milliseconds
from .schemas import Ask, Generated

POLICIES = {False: "gateway-worker", True: "gateway-costly"}  # by whether it is costly


@dataclass(frozen=True)
class Settings:
    """Where the gateway is, the names of its providers, and two times."""

    gateway_url: str
    providers: tuple[str, ...]
    timeout_s: float = 60.0  # of one call of the gateway, which gives up on its provider earlier
    wait_s: float = 15.0  # that a user of the API waits before the work is handed over
    store: str | None = None  # None: PERDURE_STORE, or perdure.db beside us


def settings_in(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of the environment; a `ConfigError` names what is wrong."""
    url = environment.get("AI_GATEWAY_URL", "")
    names = tuple(environment.get("AI_PROVIDERS", "").replace(",", " ").split())
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"AI_GATEWAY_URL is {url!r}; write where the gateway is, as http://…")
    if not names:
        raise ConfigError(
            "AI_PROVIDERS is not set; name the gateway's providers, as in local,cloud"
        )
    timeout_s = milliseconds(environment, "AI_GATEWAY_TIMEOUT_MS", 60_000) / 1_000
    wait_s = milliseconds(environment, "AI_WAIT_MS", 15_000) / 1_000
    return Settings(url, names, timeout_s, wait_s)


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
    app = App(settings.store)
    pipelines = {}
    for provider in settings.providers:
        for costly, policy in POLICIES.items():

            @app.stage(
                name="costly" if costly else "text",
                policy=policy,
                upstream=f"ai:{provider}",
                timeout_s=settings.timeout_s,
            )
            async def generate(item: Ask, context: Context) -> Generated:
                return await call_gateway(settings, item, context)

            name = f"{provider}-costly" if costly else provider
            pipelines[provider, costly] = app.pipeline(name, generate, sync_policy="gateway-sync")
    return Texts(app, pipelines)


async def call_gateway(settings: Settings, item: Ask, context: Context) -> Generated:
    """One call. An answer that is no text is raised as it came, and its code is read from it."""
    async with new_client(timeout=context.time_left_s()) as client:
        answer = await client.post(
            f"{settings.gateway_url}/v1/ai/generate-text",
            content=msgspec.json.encode(item),
            headers={"x-request-id": context.request_id},
        )
    answer.raise_for_status()
    try:
        generated = msgspec.json.decode(answer.content, type=Generated)
    except msgspec.MsgspecError as wrong:
        raise OutputInvalid(f"the gateway's answer is no text: {wrong}") from None
    used = generated.usage
    if not generated.cached:
        context.usage(tokens_in=used.tokens_in, tokens_out=used.tokens_out)
    return generated
