"""Starts and stops real servers, with the module and without. Tests are skipped without one."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis

ROOT = Path(__file__).parents[3]
MODULE = Path(os.environ.get("RL_MODULE", ROOT / "target/release/libredis_throttle.so"))
START_US = 1_700_000_000_000_000
# The server options of each back end: with the module; without it, for the function library;
# without the module and without functions.
SERVERS: dict[str, list[str]] = {
    "module": ["--loadmodule", str(MODULE), "--rl.debug-commands", "yes"],
    "functions": [],
    "script": ["--user", "default", "on", "nopass", "~*", "&*", "+@all", "-function"],
}
# If too few nodes vote for it, a replica requests their votes again after four such time-outs.
CLUSTER = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
CLUSTER_SLOTS = 16384
UNITS_US = {"ms": 1000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}


def binary() -> str | None:
    """Returns the path of the server program: named, fetched or installed."""
    named = os.environ.get("RL_SERVER")
    if named:
        return named
    fetched = sorted((ROOT / ".cache/servers").glob("*/server"), reverse=True)
    if fetched:
        return str(fetched[0])
    return shutil.which("valkey-server") or shutil.which("redis-server")


def free_port() -> int:
    """Returns a free port below 55,000, because a cluster's bus uses the port 10,000 above."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port: int = found.getsockname()[1]
            if port < 55_000:
                return port


@cache
def clock_library() -> str:
    """Builds the library that gives a server without the module the time of a test."""
    built = Path(tempfile.mkdtemp(prefix="rl-py-clock-")) / "clock.so"
    atexit.register(shutil.rmtree, built.parent, ignore_errors=True)
    source = ROOT / "tests/functions/clock.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)
    return str(built)


class Server:
    """A server on 127.0.0.1 and on a unix socket."""

    def __init__(self, *arguments: str, backend: str = "module") -> None:
        program = binary()
        if program is None or not MODULE.exists():
            if os.environ.get("CI"):
                pytest.fail("no server or no module: see RL_SERVER and RL_MODULE")
            pytest.skip("no server or no module: see RL_SERVER and RL_MODULE")
        self.directory = Path(tempfile.mkdtemp(prefix="rl-py-"))
        self.port = free_port()
        self.path = str(self.directory / "s")
        self._command = [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.path,
            "--save", "", "--dir", str(self.directory), "--enable-debug-command", "yes",
            "--logfile", str(self.directory / "log"), *SERVERS[backend], *arguments,
        ]  # fmt: skip
        self.backend, self._clock, self._environ = backend, self.directory / "clock", {}
        if backend != "module":
            self._environ = {"LD_PRELOAD": clock_library(), "RL_TEST_CLOCK": str(self._clock)}
        self.start()

    def start(self) -> None:
        self._set_clock(0)
        self.process = subprocess.Popen(self._command, env=os.environ | self._environ)
        until(self._up)

    def _set_clock(self, us: int) -> None:
        """Sets the time that a server without the module reads; 0 means the real time."""
        self._clock_us = us
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack("=q", us))

    def _up(self) -> bool:
        try:
            with redis.Redis(port=self.port, socket_timeout=60) as client:
                return bool(client.ping())
        except redis.RedisError:
            assert self.process.poll() is None, (self.directory / "log").read_text()
            return False

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, **options)

    def command(self, *args: Any) -> Any:
        with redis.Redis(port=self.port) as client:
            return client.execute_command(*args)

    def counted(self, rule: str = "gcra") -> int:
        """Returns the number of decisions; without the module, only of those that took units."""
        if self.backend != "module":
            return self.calls("set")
        info = self.command("INFO", "rl")
        return int(info[f"rl_{rule}_allowed"]) + int(info[f"rl_{rule}_denied"])

    def calls(self, command: str) -> int:
        """Returns the number of calls of a command, including those by a function or a script."""
        stats = self.command("INFO", "commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def freeze(self) -> None:
        if self.backend == "module":
            self.command("RL.DEBUG", "CLOCK", "FREEZE", START_US)
        else:
            self._set_clock(START_US)

    def advance(self, text: str) -> None:
        if self.backend == "module":
            self.command("RL.DEBUG", "CLOCK", "ADVANCE", text)
        else:
            number, unit = re.fullmatch(r"(\d+)([a-z]+)", text).groups()  # type: ignore[union-attr]
            self._set_clock(self._clock_us + int(number) * UNITS_US[unit])

    def flush(self) -> None:
        """Deletes all keys, and the library that a limiter has loaded."""
        self.command("FLUSHALL")
        self.command("SCRIPT", "FLUSH")
        if self.backend != "script":
            self.command("FUNCTION", "FLUSH")

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        if self.process.poll() is None:
            self.resume()
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.end()
        shutil.rmtree(self.directory, ignore_errors=True)


def until(done: Any) -> None:
    """Repeats ``done`` until it is true. A busy machine may need most of a minute."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[dict[str, Server]]:
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.close()


@pytest.fixture(params=SERVERS)
def backend(request: pytest.FixtureRequest) -> str:
    """Returns each back end in turn."""
    name: str = request.param
    return name


def shared(servers: dict[str, Server], backend: str) -> Server:
    if backend not in servers:
        servers[backend] = Server(backend=backend)
    servers[backend].flush()
    servers[backend].freeze()
    return servers[backend]


@pytest.fixture
def shared_server(shared_servers: dict[str, Server]) -> Server:
    """Returns an empty server with the module and a frozen clock."""
    return shared(shared_servers, "module")


@pytest.fixture
def server(shared_servers: dict[str, Server], backend: str) -> Server:
    """Returns an empty server with a frozen clock."""
    return shared(shared_servers, backend)


@pytest.fixture
def own_server(backend: str) -> Iterator[Server]:
    """Returns a server that a test may stop."""
    server = Server(backend=backend)
    yield server
    server.close()


@pytest.fixture(scope="module", params=SERVERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        nodes = []
        for _ in range(3):
            node = Server(*CLUSTER, backend=request.param)
            stack.callback(node.close)
            nodes.append(node)
        for at, node in enumerate(nodes):
            first, last = at * CLUSTER_SLOTS // 3, (at + 1) * CLUSTER_SLOTS // 3 - 1
            node.command("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)

        def together(node: Server) -> bool:
            info = node.command("CLUSTER", "INFO")
            return b"cluster_state:ok" in info and b"cluster_known_nodes:3" in info

        until(lambda: all(map(together, nodes)))
        yield nodes


def has(node: Server, key: str) -> bool:
    """Returns True if the node replies for a key without a redirection."""
    try:
        node.command("EXISTS", key)
    except redis.ResponseError:
        return False
    return True


def own(nodes: list[Server], key: str, owner: Server) -> None:
    """Gives the slot of a key to a node, without informing the clients.

    The last owner learns of it first, and the new one last. Else a message that the last owner sent
    before may take the slot back, and then two nodes redirect to each other for good.
    """
    slot, identity = owner.command("CLUSTER", "KEYSLOT", key), owner.command("CLUSTER", "MYID")
    for node in sorted(nodes, key=lambda node: (node is owner, not has(node, key))):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", identity)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
