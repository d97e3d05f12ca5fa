"""The scripted stand-in as an OpenAI-compatible HTTP endpoint with a set latency. It is no language model.

    python scripts/endpoint.py --latency 0.2
    python run.py backbone=scripted backbone.base_url=http://127.0.0.1:PORT/v1

So the whole client path is exercised: transport, concurrency, retries, time. The first line printed is
"listening on http://127.0.0.1:PORT/v1". GET /stats tells what was asked of it: calls, errors, the sum of the calls'
latencies in seconds (what a client without any concurrency would have waited), the most calls in flight at once, the
faults that were met by kind.

    python scripts/endpoint.py --faults 0.2 --seed 3

lets that share of the requests meet a fault (scripts/faults.py), the same ones each time.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import ipaddress
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.errors import missing

try:
    from aiohttp import web
except ModuleNotFoundError as error:
    print(f"endpoint.py: {missing(error)}", file=sys.stderr)
    raise SystemExit(2) from None

from harness.llm.scripted import reply_for
from harness.llm.tokens import estimate
from scripts.faults import Faults, Settings, add_options, seconds, settings_of

MODEL = "scripted"
_MAX_BODY = 16 * 2**20


@dataclasses.dataclass
class Stats:
    calls: int = 0
    errors: int = 0
    latency_sum_s: float = 0.0
    in_flight: int = 0
    max_in_flight: int = 0


def build_app(latency_s: float, settings: Settings | None = None) -> web.Application:
    """The endpoint; every reply takes at least `latency_s` seconds from the request's arrival."""
    stats = Stats()
    faults = Faults(settings or Settings())

    async def chat(request: web.Request) -> web.StreamResponse:
        began = time.perf_counter()
        stats.in_flight += 1
        stats.max_in_flight = max(stats.max_in_flight, stats.in_flight)
        try:
            try:
                body = await request.read()
                reply = complete(json.loads(body), number=stats.calls)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                stats.errors += 1
                return web.json_response({"error": {"message": f"bad request: {error!r}", "code": 400}}, status=400)
            stats.calls += 1
            await asyncio.sleep(began + latency_s - time.perf_counter())
            stats.latency_sum_s += time.perf_counter() - began
            return await faults.answer(request, body, reply)
        finally:
            stats.in_flight -= 1

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]})

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def tell(request: web.Request) -> web.Response:
        return web.json_response(dataclasses.asdict(stats) | {"faults": dict(faults.counts)})

    app = web.Application(client_max_size=_MAX_BODY)
    app.add_routes(
        [
            web.post("/v1/chat/completions", chat),
            web.get("/v1/models", models),
            web.get("/health", health),
            web.get("/stats", tell),
        ]
    )
    return app


def complete(body: dict[str, Any], *, number: int) -> dict[str, Any]:
    """A chat completion for a request's body. Tokens are the bench's estimate."""
    messages = body["messages"]
    response_format = body.get("response_format") or {}
    schema = response_format["json_schema"]["schema"] if response_format.get("type") == "json_schema" else None
    text = reply_for(messages, schema)
    prompt_tokens = sum(estimate(message["content"]) for message in messages)
    completion_tokens = estimate(text)
    return {
        "id": f"chatcmpl-scripted-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", MODEL),
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


async def run(host: str, port: int, latency_s: float, settings: Settings) -> None:
    # A client that left is not waited for, neither at once nor when the endpoint ends.
    app = build_app(latency_s, settings)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, port, backlog=1024)
    await site.start()
    bound = runner.addresses[0][1]
    print(f"listening on http://{host}:{bound}/v1", flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()


def loopback(text: str) -> str:
    try:
        if ipaddress.IPv4Address(text).is_loopback:
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text} is not a loopback address; the endpoint has no key, so 127.0.0.1 only")


def main() -> None:
    parser = argparse.ArgumentParser(description="The scripted stand-in (no language model) over HTTP.")
    parser.add_argument("--latency", type=seconds, default=0.0, help="seconds a reply takes (default 0)")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--host", type=loopback, default="127.0.0.1", help="a loopback address")
    add_options(parser)
    options = parser.parse_args()
    try:
        asyncio.run(run(options.host, options.port, options.latency, settings_of(options)))
    except OSError as error:
        parser.exit(2, f"cannot listen on {options.host}:{options.port}: {error.strerror}; give another --port\n")


if __name__ == "__main__":
    main()
