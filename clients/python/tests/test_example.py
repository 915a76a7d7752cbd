"""Tests the example as a process, over real HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import httpx
import pytest

from .conftest import ROOT, Server, free_port, until

pytestmark = pytest.mark.live
# The time of a response without a server, over HTTP: the 100 ms timeout and a margin. The test
# takes the median of several rounds, and adds the time that other responses take on this machine.
WITHIN_S = 0.15
ROUNDS = 5
ALICE = {"X-Forwarded-For": "192.0.2.7"}


def named(host: str) -> str:
    """Returns a host in the form that it has in a URL."""
    return f"[{host}]" if ":" in host else host


class Example:
    """``examples/fastapi`` under uvicorn, and its Redis server."""

    def __init__(
        self, server: Server, timeout_ms: int, host: str = "127.0.0.1", proxies: str = "127.0.0.1"
    ) -> None:
        self.server, self.port = server, free_port()
        environ = os.environ | {
            "REDIS_URL": f"redis://127.0.0.1:{server.port}", "TRUSTED_PROXIES": proxies,
            "TIMEOUT_MS": str(timeout_ms), "SILENCE_MS": str(timeout_ms),
            "BACKEND": server.backend,
            "HOST": host, "PORT": str(self.port),
        }  # fmt: skip
        command = [sys.executable, "app.py"]
        self.process = subprocess.Popen(command, cwd=ROOT / "examples/fastapi", env=environ)
        self.client = httpx.Client(base_url=f"http://{named(host)}:{self.port}", timeout=60)
        until(self._warm)

    def _warm(self) -> bool:
        assert self.process.poll() is None
        try:
            return bool(self.get("/search", "203.0.113.99").json()["source"] == "server")
        except httpx.HTTPError:
            return False

    def get(self, path: str, client: str, *spoofed: str) -> httpx.Response:
        """Sends a request as the proxy 127.0.0.1 forwards it for ``client``."""
        forwarded = ", ".join([*spoofed, client])
        return self.client.get(path, headers={"X-Forwarded-For": forwarded})

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def example(own_server: Server, request: pytest.FixtureRequest) -> Iterator[Example]:
    """Sets the default timeout of 100 ms only for tests about it, otherwise a long one."""
    own_server.freeze()
    running = Example(own_server, getattr(request, "param", 60_000))
    yield running
    running.close()


at_its_default = pytest.mark.parametrize("example", [100], indirect=True, ids=["100 ms"])


def in_time(took_s: list[float], others_s: list[float]) -> bool:
    return median(took_s) < WITHIN_S + 2 * median(others_s)


def timed(request: Callable[[], httpx.Response]) -> tuple[httpx.Response, float]:
    began = time.monotonic()
    response = request()
    return response, time.monotonic() - began


def test_a_burst_is_served_and_then_denied_with_a_problem(example: Example) -> None:
    served = [example.get("/", "192.0.2.7") for _ in range(10)]
    assert [one.status_code for one in served] == [200] * 10
    assert served[0].headers["ratelimit"] == '"api";r=9;t=6'
    denied = example.get("/", "192.0.2.7")
    assert denied.status_code == 429
    assert denied.headers["retry-after"] == "6"
    assert denied.headers["ratelimit-policy"] == '"api";q=10;w=60'
    assert denied.json() == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Come back in 6 seconds.",
        "violated-policies": ["api"],
    }
    # A spoofed address changes nothing. Another client and an IPv6 network have their own limits.
    assert example.get("/", "192.0.2.7", "1.1.1.1").status_code == 429
    assert example.get("/", "192.0.2.8").status_code == 200
    for host in range(10):
        assert example.get("/", f"2001:db8::{host + 1:x}").status_code == 200
    assert example.get("/", "2001:db8::ffff").status_code == 429
    example.server.advance("6s")
    assert example.get("/", "192.0.2.7").status_code == 200


def test_several_rules_are_checked_in_one_call(example: Example) -> None:
    found = [example.get("/report", "192.0.2.7") for _ in range(4)]
    assert [one.status_code for one in found] == [200, 200, 200, 429]
    assert found[-1].json()["violated-policies"] == ["day"]
    assert found[0].headers["ratelimit-policy"] == '"api";q=10;w=60, "day";q=3;w=86400'


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_client_without_a_proxy_cannot_set_its_address(own_server: Server, host: str) -> None:
    own_server.freeze()
    example = Example(own_server, 60_000, host, proxies="")
    try:
        found = [example.get("/", f"192.0.2.{at}").status_code for at in range(11)]
        assert found == [200] * 10 + [429]
    finally:
        example.close()


def burst_in_time(example: Example) -> list[tuple[httpx.Response, float]]:
    """Returns eleven responses that the server decided, and the time of each.

    On a busy machine a call may time out, which allows it.
    """
    for _ in range(100):
        until(lambda: example.get("/", "192.0.2.1").json()["source"] == "server")
        example.server.command("FLUSHALL")
        served = [timed(partial(example.get, "/", "192.0.2.7")) for _ in range(11)]
        if all(one.status_code == 429 or one.json()["source"] == "server" for one, _ in served):
            return served
    pytest.fail("the server never decides eleven calls in time")


@at_its_default
def test_on_error_decides_while_the_server_is_down(example: Example) -> None:
    first: list[float] = []
    next_ones: list[float] = []
    others: list[float] = []
    for _ in range(ROUNDS):
        served = burst_in_time(example)
        assert [response.status_code for response, _ in served] == [200] * 10 + [429]
        others += [took for _, took in served]
        example.server.end()
        # The server's last denial still counts.
        assert example.get("/", "192.0.2.7").status_code == 429
        twelfth, took = timed(lambda: example.get("/", "192.0.2.9"))
        assert (twelfth.status_code, twelfth.json()["source"]) == (200, "error")
        assert "ratelimit" not in twelfth.headers
        first.append(took)
        for _ in range(5):
            response, took = timed(lambda: example.get("/", "192.0.2.9"))
            assert (response.status_code, response.json()["source"]) == (200, "error")
            next_ones.append(took)
        closed = example.client.post("/login", headers=ALICE)
        assert (closed.status_code, closed.headers["retry-after"]) == (503, "1")
        assert closed.headers["content-type"] == "application/problem+json"
        with example.client.stream("GET", "/export", headers=ALICE) as export:
            assert export.status_code == 200
        example.server.start()
    # Under ``local`` this process allows half of four, without the server.
    example.server.end()
    local = [example.get("/search", "192.0.2.8").status_code for _ in range(3)]
    assert local == [200, 200, 429]
    assert in_time(first, others)
    assert in_time(next_ones, others)


@at_its_default
def test_a_hung_server_counts_the_request_at_most_once(example: Example) -> None:
    took_s: list[float] = []
    others: list[float] = []
    sleep_s = 0.6
    with example.server.client() as other:
        for at in range(100):
            if len(took_s) == ROUNDS:
                break
            until(lambda: example.get("/", "192.0.2.1").json()["source"] == "server")
            example.server.advance("60s")
            others.append(timed(partial(example.get, "/", "192.0.2.1"))[1])
            before = example.server.counted()
            sleeping = other.connection_pool.get_connection()
            sleeping.send_command("DEBUG", "SLEEP", str(sleep_s))
            time.sleep(0.05)
            served, took = timed(partial(example.get, "/", f"192.0.2.{at}"))
            assert served.status_code == 200
            if served.json()["source"] == "error" and not sleeping.can_read(0):
                took_s.append(took)
            else:
                # On a busy machine the call may arrive before or after the sleep.
                sleep_s += 0.2
            sleeping.read_response()
            other.connection_pool.release(sleeping)
            assert example.server.counted() - before <= 1
    assert len(took_s) == ROUNDS
    assert in_time(took_s, others)


def held(server: Server) -> bool:
    return bool(server.command("KEYS", "example:exports:*"))


def test_a_lease_is_released_when_the_client_disconnects(example: Example) -> None:
    with example.client.stream("GET", "/export", headers=ALICE) as first:
        assert first.status_code == 200
        chunks = first.iter_bytes()
        assert next(chunks)
        assert held(example.server)
        assert example.get("/export", "192.0.2.7").status_code == 429
        # Leaving the block closes the connection before the response has ended.
    until(lambda: not held(example.server))
    with example.client.stream("GET", "/export", headers=ALICE) as again:
        assert again.status_code == 200
