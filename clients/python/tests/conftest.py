"""A real server with the module, started and ended here; skipped where there is none."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

ROOT = Path(__file__).parents[3]
MODULE = Path(os.environ.get("RL_MODULE", ROOT / "target/release/libredis_throttle.so"))
START_US = 1_700_000_000_000_000


def binary() -> str | None:
    """The server's program: named, fetched or installed."""
    named = os.environ.get("RL_SERVER")
    if named:
        return named
    fetched = sorted((ROOT / ".cache/servers").glob("*/server"), reverse=True)
    if fetched:
        return str(fetched[0])
    return shutil.which("valkey-server") or shutil.which("redis-server")


def free_port() -> int:
    """One that leaves room for a cluster's second port, 10,000 above."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port: int = found.getsockname()[1]
            if port < 55_000:
                return port


class Server:
    """A server on 127.0.0.1, and its unix socket."""

    def __init__(self, *arguments: str) -> None:
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
            "--loadmodule", str(MODULE), "--rl.debug-commands", "yes",
            "--logfile", str(self.directory / "log"), *arguments,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command)
        until(self._up)

    def _up(self) -> bool:
        try:
            with redis.Redis(port=self.port, socket_timeout=5) as client:
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
        """Decisions that the server has made."""
        info = self.command("INFO", "rl")
        return int(info[f"rl_{rule}_allowed"]) + int(info[f"rl_{rule}_denied"])

    def freeze(self) -> None:
        self.command("RL.DEBUG", "CLOCK", "FREEZE", START_US)

    def advance(self, text: str) -> None:
        self.command("RL.DEBUG", "CLOCK", "ADVANCE", text)

    def stop_answering(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def answer_again(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        if self.process.poll() is None:
            self.answer_again()
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.end()
        shutil.rmtree(self.directory, ignore_errors=True)


def until(done: Any, seconds: float = 10) -> None:
    """Asks again and again until it is so."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """An empty server with a frozen clock."""
    shared_server.command("FLUSHALL")
    shared_server.freeze()
    return shared_server


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
