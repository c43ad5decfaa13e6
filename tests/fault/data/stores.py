"""An HTTP store on loopback that fails on purpose, by a fixed seed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FlakyStore:
    """Objects by key, and how often a read of them goes wrong."""

    objects: dict[str, bytes]
    errors: float = 0.0
    truncated: float = 0.0
    slow: float = 0.0
    slow_s: float = 0.2
    latency_s: float = 0.0
    ranged: bool = True
    stall_s: float = 0.0
    stalls_left: int = 0
    status: int = 500
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    requests: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    hold_for: int = 0
    """Reads are held back until this many are there at once, or ten seconds have passed."""
    sent_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    enough: threading.Event = field(default_factory=threading.Event)

    def fate(self) -> str:
        with self.lock:
            self.requests += 1
            if self.stalls_left:
                self.stalls_left -= 1
                return "stall"
            value = self.draw.random()
        for name in ("errors", "truncated", "slow"):
            chance = getattr(self, name)
            if value < chance:
                return name
            value -= chance
        return "clean"


@contextmanager
def serving(store: FlakyStore) -> Iterator[str]:
    """The root address while the store runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            data = store.objects.get(self.path.lstrip("/"))
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            if store.ranged:
                self.send_header("Accept-Ranges", "bytes")
            self.end_headers()

        def do_GET(self) -> None:
            with store.lock:
                store.in_flight += 1
                store.most_in_flight = max(store.most_in_flight, store.in_flight)
                if store.most_in_flight >= store.hold_for:
                    store.enough.set()
            if store.hold_for:
                store.enough.wait(10.0)
            try:
                self._answer()
            finally:
                with store.lock:
                    store.in_flight -= 1

        def _answer(self) -> None:
            data = store.objects.get(self.path.lstrip("/"))
            fate = store.fate()
            time.sleep(store.latency_s)
            if fate == "stall":
                time.sleep(store.stall_s)
            if fate == "slow":
                time.sleep(store.slow_s)
            if data is None or fate == "errors":
                self.send_response(404 if data is None else store.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            asked = self.headers.get("Range")
            code, total = 200, len(data)
            start = 0
            if asked and store.ranged:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start = int(first)
                data = data[start : int(last) + 1]
                code = 206
            body = data[: len(data) // 2] if fate == "truncated" else data
            # Half of the cut bodies claim to be whole, as a proxy's would.
            honest = fate != "truncated" or store.requests % 2
            self.send_response(code)
            self.send_header("Content-Length", str(len(body) if not honest else len(data)))
            if code == 206:
                self.send_header("Content-Range", f"bytes {start}-{start + len(data) - 1}/{total}")
            self.end_headers()
            # The reader has left: its read was cut off.
            with suppress(ConnectionError):
                self.wfile.write(body)
            with store.lock:
                store.sent_bytes += len(body)
            if len(body) < len(data):
                self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
