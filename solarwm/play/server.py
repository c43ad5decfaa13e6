"""The web side of `solarwm play`: one page, one socket, one walker at a time.

What goes over the socket. From the page, JSON: `{"keys": "wj"}` whenever the held keys change,
`{"shown": n, "walk": w}` when chunk n of walk w was on the screen, `{"restart": true}`. To the page: JSON
`{"hello": ...}`, `{"chunk": ...}` and `{"fault": ...}`; each chunk is followed by its frames, one
JPEG a message.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.resources import files
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from solarwm.camera.trajectory import MOVES, TURNS
from solarwm.errors.types import SolarError
from solarwm.play.world import PlayedChunk, World

AHEAD = 2
"""Chunks made before the first of them was shown: more hides hiccups, fewer answers keys sooner."""
SILENCE_S = 300.0
"""A page that answers nothing for this long is gone."""
BUSY, REFUSED = 4009, 4003
"""Close codes: somebody else is walking; no token."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class PlayServer:
    """The application over a way to make worlds."""

    def __init__(
        self, make_world: Callable[[], World], *, title: str, fps: float, token: str | None
    ) -> None:
        self._make_world = make_world
        self._title = title
        self._fps = fps
        self._token = token
        self._walker = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="world")
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/health", self._health),
                WebSocketRoute("/walk", self._walk),
            ]
        )

    def _admits(self, connection: HTTPConnection) -> bool:
        """Whether this caller may walk: the token, or without one a page of this very machine.

        The names in Host and Origin are looked at, so that no other site a browser shows can reach
        a server that needs no token.
        """
        if self._token is not None:
            given = connection.query_params.get("token", "")
            return hmac.compare_digest(given.encode(), self._token.encode())
        host = connection.headers.get("host", "")
        origin = connection.headers.get("origin")
        return _name(host) in LOOPBACK and (origin is None or origin == f"http://{host}")

    async def _page(self, request: Request) -> Response:
        if not self._admits(request):
            return PlainTextResponse(
                "This walk is open to who has the address with its token.\n", status_code=403
            )
        text = files("solarwm.play").joinpath("page.html").read_text(encoding="utf-8")
        policy = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob:"
        return HTMLResponse(
            text, headers={"Content-Security-Policy": policy, "Cache-Control": "no-store"}
        )

    async def _health(self, request: Request) -> Response:
        if not self._admits(request):
            return JSONResponse({"ok": False}, status_code=403)
        return JSONResponse({"ok": True, "walking": self._walker.locked()})

    async def _walk(self, socket: WebSocket) -> None:
        admitted = self._admits(socket)
        await socket.accept()
        if not admitted:
            await socket.close(REFUSED, "a token is needed")
            return
        if self._walker.locked():
            await socket.close(BUSY, "somebody else is walking")
            return
        async with self._walker:
            hello = {"title": self._title, "fps": self._fps, "keys": "".join((*MOVES, *TURNS))}
            visit = _Visit(socket, self._make_world, self._thread)
            try:
                await socket.send_text(json.dumps({"hello": hello}))
                await visit.run()
            except TimeoutError:
                await socket.close(1001, f"nothing was heard for {SILENCE_S:.0f} s")
            except WebSocketDisconnect:
                pass


class _Visit:
    """One visitor: reads keys while chunks are made in the one thread there is for it, so that a
    chunk nobody waits for any more ends before the next visitor's begins."""

    def __init__(
        self, socket: WebSocket, make_world: Callable[[], World], thread: ThreadPoolExecutor
    ) -> None:
        self._socket = socket
        self._make_world = make_world
        self._thread = thread
        self._keys = ""
        self._walk = 0
        """Counts restarts."""
        self._shown = -1
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until the page is gone or a chunk cannot be made."""
        tasks = (asyncio.create_task(self._listen()), asyncio.create_task(self._make()))
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    async def _listen(self) -> None:
        while True:
            text = await asyncio.wait_for(self._socket.receive_text(), SILENCE_S)
            with suppress(ValueError):
                self._take(json.loads(text))
            self._news.set()

    def _take(self, told: Any) -> None:
        if not isinstance(told, dict):
            return
        if isinstance(told.get("keys"), str):
            known = [key for key in dict.fromkeys(told["keys"]) if key in MOVES or key in TURNS]
            self._keys = "".join(known)
        if isinstance(told.get("shown"), int) and told.get("walk") == self._walk:
            self._shown = max(self._shown, told["shown"])
        if told.get("restart") is True:
            self._walk += 1
            self._shown = -1

    async def _make(self) -> None:
        try:
            while True:
                await self._one_walk(self._walk)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            code = getattr(error, "code", "bug.unexpected")
            text = getattr(error, "headline", f"{type(error).__name__}: {error}")
            await self._socket.send_text(json.dumps({"fault": {"code": code, "text": text}}))
            await self._socket.close(1011, str(code))
            if not isinstance(error, SolarError):
                raise

    async def _one_walk(self, walk: int) -> None:
        """Make chunks until the page asks for a new walk."""
        began, trail = time.monotonic(), Trail()
        world = await self._in_thread(self._make_world)
        number = 0
        while walk == self._walk:
            if number - 1 - self._shown >= AHEAD:
                self._news.clear()
                await self._news.wait()
                continue
            keys = self._keys
            chunk = await self._in_thread(lambda keys=keys: world.advance(keys))
            if walk != self._walk:
                return
            trail.add(keys, latents=world.chunk_latents)
            await self._send(chunk, walk, keys, trail, time.monotonic() - began)
            number += 1

    async def _send(
        self, chunk: PlayedChunk, walk: int, keys: str, trail: Trail, since_s: float
    ) -> None:
        pictures = await self._in_thread(lambda: [_jpeg(frame) for frame in chunk.frames_NYX3])
        told = {
            "number": chunk.number,
            "walk": walk,
            "frames": len(pictures),
            "keys": keys,
            "sampling_s": round(chunk.sampling_s, 4),
            "decoding_s": round(chunk.decoding_s, 4),
            "since_start_s": round(since_s, 4),
            "position": [round(float(value), 4) for value in chunk.c2w_N44[-1, :3, 3]],
            "trajectory": trail.text,
        }
        await self._socket.send_text(json.dumps({"chunk": told}))
        for picture in pictures:
            await self._socket.send_bytes(picture)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class Trail:
    """The keys of a walk so far, as `infer --trajectory` takes them."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, int]] = []
        self._first = True

    def add(self, keys: str, *, latents: int) -> None:
        """One chunk with these keys held; the first latent of all is the picture itself."""
        held = latents - self._first
        self._first = False
        if self._steps and self._steps[-1][0] == keys:
            held += self._steps.pop()[1]
        self._steps.append((keys, held))

    @property
    def text(self) -> str:
        """Such as `w*5,j*3`; empty before the first chunk."""
        return ",".join(f"{keys or '.'}*{held}" for keys, held in self._steps)


def _jpeg(frame_YX3: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame_YX3).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() else host
