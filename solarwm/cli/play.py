"""`solarwm play`."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from solarwm.cli.output import JsonOption
from solarwm.cli.run_options import ConfigOption, SetFileOption, SetOption, open_run
from solarwm.errors.types import SolarError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def play(
    config: ConfigOption,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="In place of checkpoint.path.")
    ] = None,
    set_: SetOption = None,
    set_file: SetFileOption = None,
    image: Annotated[
        Path | None, typer.Option("--image", help="Start here, not at the first held-out clip.")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="What the start shows.")] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes any free one.")] = 8642,
    json: JsonOption = False,
) -> None:
    """Walk through a world: a local page where keys steer and chunks stream as they are made.

    Needs a model that goes chunk by chunk (Stage1 or Stage2). One walker at a time. Ctrl-C ends it.
    """
    from solarwm.play.opening import ALONE, Asked, opened

    sets = [*(set_ or ()), *ALONE]
    if checkpoint is not None:
        sets.append(f"checkpoint.path={checkpoint.absolute()}")
    resolved = open_run(config, sets, set_file, command="infer")
    listening = _listen(host, port)
    with listening, opened(resolved, Asked(image=image, prompt=prompt)) as parts:
        import uvicorn

        from solarwm.play.server import PlayServer
        from solarwm.play.world import World

        token = None if host in LOOPBACK else secrets.token_urlsafe(24)
        server = PlayServer(
            lambda: World(parts.engine, parts.start, seed=parts.seed),
            title=f"{resolved.config.name} from {parts.start.name}",
            fps=parts.fps,
            token=token,
        )
        _tell(_address(listening, host, token), json=json)
        settings = uvicorn.Config(
            server.app, log_level="warning", ws_max_size=65536, timeout_graceful_shutdown=5
        )
        try:
            uvicorn.Server(settings).run(sockets=[listening])
        except KeyboardInterrupt:
            sys.stderr.write("play ended\n")


def _listen(host: str, port: int) -> socket.socket:
    """A socket on this address, before anything heavy is loaded."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise SolarError(
            "play.address",
            f"nothing can be served at {host} port {port}",
            where="--host, --port",
            why=str(error),
            fixes=["--port 0 takes any free port"],
        ) from None


def _address(listening: socket.socket, host: str, token: str | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/" + (f"?token={token}" if token else "")


def _tell(address: str, *, json: bool) -> None:
    import orjson

    text = (
        orjson.dumps({"address": address}).decode() if json else f"walk at {address}  (Ctrl-C ends)"
    )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
