"""A server, a program in a language, and a proxy between them, for `pressure.py`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from proxy import Proxies, Proxy
from server import Server

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
JAVA = str(ROOT / "benches/clients/java/target")
# Commands that a driver may use at a time: of a pool of connections, and of one connection.
POOL, PIPELINE = 64, 256
# A limit that no job reaches in its time.
UNREACHED = {"kind": "fixed", "limit": 1_000_000_000, "rate": 0, "period_s": 3600}
JOB_MAX_S = 60
# Ports below those that the system gives to clients.
PORTS = range(20_000, 30_000)


@dataclass(frozen=True)
class Language:
    """A program that calls one client in one way.

    In its command, `{address}` stands for the address of the server or of the proxy, `{http}` and
    `{grpc}` for ports of its own. `at_once` is false if the program has a thread for each caller,
    so that 10,000 callers are not its use. `lanes` is the number of commands that are under way at
    a time. A service has no jobs: it serves HTTP at `path`.
    """

    name: str
    command: Sequence[str]
    at_once: bool = True
    lanes: int = PIPELINE
    path: str = ""

    @property
    def is_service(self) -> bool:
        """True for a service."""
        return self.path != ""

    @property
    def first_dial_ms(self) -> int:
        """The longest time of the first dial."""
        return 5000 if self.name.startswith("java") else 1000


PYTHON = [str(ROOT / ".cache/venv/bench/bin/python"), "benches/clients/python/pressure.py",
          "{address}"]  # fmt: skip
NODE = ["node", "benches/clients/node/pressure.js", "{address}"]
JAVA_PROGRAM = ["java", "-cp", f"{JAVA}/bench.jar:{JAVA}/dependency/*",
                "redisthrottle.bench.Pressure", "{address}"]  # fmt: skip
LANGUAGES = [
    Language("python, threads", PYTHON, at_once=False, lanes=POOL),
    Language("python, asyncio", [*PYTHON, "asyncio"], lanes=POOL),
    Language("node, ioredis", [*NODE, "ioredis"]),
    Language("node, node-redis", [*NODE, "node-redis"]),
    Language("rust", [str(TARGET / "release/bench-rust-client"), "pressure", "{address}"]),
    Language("go", [str(ROOT / ".cache/bench-go-client"), "pressure", "{address}"], lanes=POOL),
    Language("java, threads", JAVA_PROGRAM, at_once=False),
    Language("java, async", [*JAVA_PROGRAM, "async"]),
]


def example(name: str, *command: str) -> Language:
    """Returns an example application, which limits a request by its API key."""
    settings = ["env", "REDIS_URL=redis://{address}", "HOST=127.0.0.1", "PORT={http}"]
    return Language(name, [*settings, *command], path="/me")


GATEWAY = Language(
    "gateway",
    [str(TARGET / "release/redis-throttle-gateway"), "--server", "redis://{address}",
     "--config", "benches/clients/gateway.yaml", "--http", "127.0.0.1:{http}",
     "--grpc", "127.0.0.1:{grpc}"],
    path="/check/api",
)  # fmt: skip
SERVICES = [
    example("python, ASGI", str(ROOT / ".cache/venv/fastapi/bin/python"),
            "examples/fastapi/app.py"),
    example("node, Express", "node", "examples/express/server.js"),
    example("rust, axum", str(TARGET / "debug/example-axum")),
    example("go, net/http", str(ROOT / ".cache/example-nethttp")),
    example("java, servlet", "java", "-XX:TieredStopAtLevel=1", "-jar",
            "examples/spring-boot/target/example-spring-boot.jar"),
    GATEWAY,
]  # fmt: skip


class Failure(Exception):
    """A program that does not start, ends, hangs, or does not begin as a row needs it."""


class Call(NamedTuple):
    """A call of a program. `began_ms` is a Unix time."""

    began_ms: float
    took_ms: float
    outcome: str

    @property
    def is_peek(self) -> bool:
        """True for a `peek`."""
        return self.outcome.startswith("peek ")

    @property
    def is_allowed(self) -> bool:
        """True if the call was allowed."""
        return "allowed" in self.outcome

    @property
    def is_degraded(self) -> bool:
        """True if there was no reply, also for an error."""
        words = self.outcome.removeprefix("peek ").split()
        return words[0] == "raised" or len(words) > 2

    @property
    def ended_ms(self) -> float:
        """The Unix time of the end."""
        return self.began_ms + self.took_ms


def outcomes(calls: list[Call]) -> str:
    """Returns the number of calls of each outcome."""
    counts = Counter(call.outcome for call in calls)
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())


def now_ms() -> float:
    """Returns the Unix time."""
    return time.time() * 1000


@dataclass(frozen=True)
class Tools:
    """Settings that all runs share: the server's program and module, and the cores.

    `on_first` are the words before a command that runs on the first core.
    """

    server: str
    module: str
    on_first: Sequence[str]
    proxies: Proxies

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns a command that runs on the core of programs and servers."""
        return [*self.on_first, *words]


_next_port = iter(range(PORTS.start + os.getpid() % 5000, PORTS.stop))
_ports = threading.Lock()


def free_port() -> int:
    """Returns a port on which nothing listens."""
    with _ports:
        for port in _next_port:
            with socket.socket() as probe, suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                return port
    raise Failure("no port is free")


class Scene:
    """A server, a program and, if it is `proxied`, a proxy between them. Its end ends them all."""

    def __init__(self, tools: Tools, language: Language, *, proxied: bool = False) -> None:
        self.language = language
        self.notes: list[str] = []
        self._ends = ExitStack()
        try:
            port = free_port()
            program = tools.command([tools.server])
            self.server = self._ends.enter_context(Server(program, tools.module, port))
            self.proxy = Proxy(tools.proxies, free_port() if proxied else 0, port)
            self._ends.callback(self.proxy.close)
            self.http, self.grpc = free_port(), free_port()
            address = f"127.0.0.1:{self.proxy.port or port}"
            words = [word.format(address=address, http=self.http, grpc=self.grpc)
                     for word in language.command]  # fmt: skip
            # A service may print more than a pipe holds.
            output = subprocess.DEVNULL if language.is_service else subprocess.PIPE
            self.program = subprocess.Popen(
                tools.command(words), cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._ends.callback(self._end)
        except BaseException:
            self._ends.close()
            raise

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _end(self) -> None:
        for process in (self.program, self.server.process):
            process.send_signal(signal.SIGCONT)
        self.program.kill()
        self.program.communicate()

    def begin(self, **job: Any) -> None:
        """Begins a job. It has one key under a limit that it does not reach, if not said."""
        plain = {"name": "k", "rule": UNREACHED, "keys": 1, "callers": 1, "seconds": 0, "rate": 0,
                 "burst": 0, "peek_every": 0}  # fmt: skip
        assert self.program.stdin is not None
        self.program.stdin.write(json.dumps({**plain, **job}) + "\n")
        self.program.stdin.flush()

    def end(self) -> list[Call]:
        """Waits for the end of the job and returns its calls, in the order of their beginnings."""
        assert self.program.stdout is not None
        patience = threading.Timer(JOB_MAX_S, self.program.kill)
        patience.start()
        line = self.program.stdout.readline()
        patience.cancel()
        if not line:
            raise Failure(f"the program has ended, or a job lasted {JOB_MAX_S} s")
        reply = json.loads(line)
        began_ms = reply["began_ms"]
        calls = sorted(
            Call(began_ms + began / 1000, took / 1000, outcome)
            for outcome, numbers in reply["calls"].items()
            for began, took in zip(numbers[::2], numbers[1::2], strict=True)
        )
        self.notes.append(outcomes(calls))
        return calls

    def job(self, **job: Any) -> list[Call]:
        """Runs a job and returns its calls."""
        self.begin(**job)
        return self.end()

    def settle(self, callers: int = 0) -> None:
        """Makes calls until the server decides, and a number of callers with some calls each."""
        notes = self.notes.copy()
        if callers:
            self.job(name="settle", callers=callers, calls=20 * callers)
        for _ in range(20):
            if not self.job(name="settle", rate=50, calls=5)[-1].is_degraded:
                break
        self.notes = notes

    def listening(self) -> None:
        """Waits until the service listens."""
        end = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", self.http)) != 0:
            if self.program.poll() is not None or time.monotonic() > end:
                raise Failure("the service did not start")
            time.sleep(0.1)

    def stall(self, seconds: float) -> None:
        """Stalls the server for a time, and returns after it."""
        self.server.call("DEBUG", "SLEEP", seconds)


class Quota:
    """Gives a process a tenth of a core while the context is open.

    That is a control group if this process may create one. Otherwise the process is stopped for
    nine tenths of each 100 ms.
    """

    PERIOD_S = 0.1
    GROUPS = Path("/sys/fs/cgroup/cpu")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._group = self.GROUPS / f"redis-throttle-bench-{pid}"
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        try:
            self._group.mkdir()
            for name, us in (("period", self.PERIOD_S * 1e6), ("quota", self.PERIOD_S * 1e5)):
                (self._group / f"cpu.cfs_{name}_us").write_text(f"{us:.0f}")
            (self._group / "cgroup.procs").write_text(str(self._pid))
        except OSError:
            self._thread = threading.Thread(target=self._stop_and_continue)
            self._thread.start()

    def _stop_and_continue(self) -> None:
        while not self._ends.is_set():
            os.kill(self._pid, signal.SIGSTOP)
            self._ends.wait(0.9 * self.PERIOD_S)
            os.kill(self._pid, signal.SIGCONT)
            time.sleep(0.1 * self.PERIOD_S)

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
            return
        (self.GROUPS / "cgroup.procs").write_text(str(self._pid))
        self._group.rmdir()


def cores() -> tuple[list[str], Callable[[], None]]:
    """Returns the words that run a command on the first core, and what takes the second."""
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(found) < 2 or shutil.which("taskset") is None:
        return [], lambda: None
    return ["taskset", "-c", str(found[0])], lambda: os.sched_setaffinity(0, {found[1]})
