"""Rows of `pressure.py` for the example applications and the gateway."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import subprocess
import threading
import time
from collections import Counter, deque

from figures import Figure, Measured, case_of
from scene import GATEWAY, ROOT, Scene


def abort_requests(port: int, path: str, ends: threading.Event) -> None:
    """Sends requests as fast as it can, and resets their connections, some of them at a time."""
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: bad\r\n\r\n".encode()
    reset = struct.pack("ii", 1, 0)
    under_way: deque[socket.socket] = deque()
    while not ends.is_set():
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        connection.sendall(request)
        under_way.append(connection)
        if len(under_way) > 16:
            under_way.popleft().close()
    for connection in under_way:
        connection.close()


def storm(scene: Scene) -> Measured:
    """Aborts requests while another client behaves. Each reply of the server is 20 ms late."""
    scene.proxy.delay_s = lambda _: 0.02
    scene.proxy.listen()
    scene.listening()
    path = scene.language.path
    client = http.client.HTTPConnection("127.0.0.1", scene.http, timeout=10)

    def source(number: int) -> str:
        client.request("GET", path, headers={"X-Api-Key": f"good-{number}"})
        response = client.getresponse()
        body = response.read()
        if response.status != 200:
            return str(response.status)
        return "server" if scene.language is GATEWAY else str(json.loads(body)["source"])

    began = time.monotonic()
    while source(0) != "server" and time.monotonic() < began + 10:
        time.sleep(0.1)
    ends = threading.Event()
    aborting = threading.Thread(target=abort_requests, args=(scene.http, path, ends))
    aborting.start()
    sources: Counter[str] = Counter()
    began = time.monotonic()
    # A slow application serves few of these calls next to those that are aborted.
    while (lasted := time.monotonic() - began) < 3 or (sources.total() < 20 and lasted < 10):
        sources[source(sources.total() + 1)] += 1
    ends.set()
    aborting.join()
    scene.notes.append(str(dict(sources)))
    wrong = sources.total() - sources["server"]
    yield case_of("a client that aborts its requests", Figure("by on_error", wrong, 0))


def load(scene: Scene, *words: object) -> tuple[float, float, float]:
    """Loads the gateway, with the program of `make bench-gateway`.

    Returns the requests, those without a response that allows them, and the seconds.
    """
    command = ["cargo", "bench", "--locked", "--quiet", "--package", "redis-throttle-gateway",
               "--bench", "gateway", "--", "load", f"127.0.0.1:{scene.grpc}",
               *map(str, words)]  # fmt: skip
    output = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    sent, failed, seconds = map(float, output.stdout.split())
    return sent, failed, seconds


def degraded_requests(scene: Scene) -> float:
    """Returns the number of requests of the gateway that `on_error` decided."""
    client = http.client.HTTPConnection("127.0.0.1", scene.http, timeout=10)
    client.request("GET", "/metrics")
    text = client.getresponse().read().decode()
    counts = re.findall(r"^redis_throttle_gateway_degraded_total.* ([\d.]+)$", text, re.M)
    return sum(map(float, counts))


def gateway(scene: Scene) -> Measured:
    """Loads the gateway with half of the requests that it and the server serve on their core."""
    scene.listening()
    sent, failed, seconds = load(scene, "callers", 64, 2)
    per_s = (sent - failed) / seconds
    before = degraded_requests(scene)
    sent, failed, _ = load(scene, "rate", round(per_s / 2), 4)
    share = (degraded_requests(scene) - before) / sent
    scene.notes.append(f"{per_s:,.0f} requests per second in a closed loop; then {sent:,.0f} "
                       f"sent, {failed:,.0f} without a response that allows")  # fmt: skip
    yield case_of(
        "half of the closed-loop rate", Figure("by on_error", share * 100, 0.1, unit="%", digits=2)
    )
