"""The server that all programs call, and its counts of the calls that it received."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Server:
    """A server with the module, which listens on a unix socket, and on a port if it is not 0.

    `program` is the program with the words before the options of the server.
    """

    def __init__(self, program: Sequence[str], module: str, port: int = 0) -> None:
        self._program = " ".join(program)
        self._directory = tempfile.TemporaryDirectory(prefix="rl-bench-")
        self.path = f"{self._directory.name}/s"
        command = [*program, "--bind", "127.0.0.1", "--port", str(port), "--unixsocket", self.path,
                   "--save", "", "--appendonly", "no", "--enable-debug-command", "local",
                   "--dir", self._directory.name, "--loadmodule", module]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._connection = self._connect()
        self._replies = self._connection.makefile("rb")

    def _connect(self) -> socket.socket:
        end = time.monotonic() + 10
        while True:
            connection = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                connection.connect(self.path)
                return connection
            connection.close()
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{self._program} did not start with the module")
            time.sleep(0.05)

    def call(self, *words: object) -> Any:
        """Sends one command; an error reply is returned as a `RuntimeError`."""
        encoded = [str(word).encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self._connection.sendall(b"*%d\r\n%s" % (len(parts), b"".join(parts)))
        return self._reply()

    def _reply(self) -> Any:
        kind, rest = (line := self._replies.readline())[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self._replies.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        if kind == b":":
            return int(rest)
        return RuntimeError(rest.decode()) if kind == b"-" else rest.decode()

    def calls(self) -> int:
        """Returns the number of commands received, except from this connection and in scripts."""
        lines = re.findall(r"^cmdstat_(\S+?):calls=(\d+)", self.call("INFO", "commandstats"), re.M)
        ours = {"info", "flushall", "keys", "rl.peek", "config|resetstat"}
        # The server also counts commands inside scripts. If there are scripts, count only the
        # scripts.
        counts = {name: int(count) for name, count in lines if name not in ours}
        scripts = sum(counts.get(name, 0) for name in ("eval", "evalsha"))
        return scripts or sum(count for name, count in counts.items() if not is_of_setup(name))

    def used(self, limit: int, period_s: int) -> int | None:
        """Returns the units used on the only key; None if there is not one key with a limit."""
        keys = self.call("KEYS", "*")
        if len(keys) != 1:
            return None
        for rule in (("GCRA", limit, limit), ("TOKENBUCKET", limit, limit), ("FIXED", limit)):
            reply = self.call("RL.PEEK", keys[0], *rule, period_s, "COST", 0)
            if isinstance(reply, list):
                return limit - int(reply[2])
        return None

    def version(self) -> str:
        """Returns the name and version that the server reports."""
        info = self.call("INFO", "server")
        for name in ("valkey", "redis"):
            if found := re.search(rf"^{name}_version:(\S+)", info, re.M):
                return f"{name.capitalize()} {found[1]}"
        return "unknown"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server."""
        self._connection.close()
        self.process.terminate()
        self.process.wait()
        self._directory.cleanup()


def is_of_setup(command: str) -> bool:
    """Returns true for a command that a driver sends once per connection, never per call."""
    once = ("hello", "auth", "select", "ping", "quit", "reset", "command", "script", "client")
    return command.split("|")[0] in once


def options_of(page: str) -> argparse.ArgumentParser:
    """Returns a parser of the options of all benchmarks, for the program described by `page`."""
    parser = argparse.ArgumentParser(description=page.splitlines()[0])
    environ = os.environ.get
    built = Path(__file__).resolve().parents[2] / "target/release/libredis_throttle.so"
    parser.add_argument("--server", default=environ("SERVER") or "redis-server")
    parser.add_argument("--module", default=environ("RL_MODULE", str(built)))
    parser.add_argument("--rounds", type=int, default=int(environ("ROUNDS") or 5))
    parser.add_argument("--print", action="store_true", help="do not write the page")
    return parser
