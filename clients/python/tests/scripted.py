"""Scripted connections for the timelines: a driver's connection whose server follows a script."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from typing import Any

from redis_throttle_client import Unavailable

# The commands with which a driver opens a connection.
_HANDSHAKE = frozenset({"AUTH", "CLIENT", "HELLO", "PING", "SELECT"})


def encoded(reply: Any) -> bytes:
    """Returns a reply as RESP2."""
    if isinstance(reply, dict):
        return b"-%s\r\n" % reply["error"].encode()
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(encoded, reply))
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    data = reply.encode()
    return b"$%d\r\n%s\r\n" % (len(data), data)


class Script:
    """A server that answers each command by the next item of its script.

    ``sent`` has the commands that arrived, ``dials`` the number of attempts to connect, and
    ``generation`` the number of the connection on which the last command arrived.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.dials = self.generation = self._opened = 0
        self.over = False
        self.unexpected: list[str] = []
        self._items: deque[Any] = deque()
        self._by_key: dict[str, deque[Any]] = {}
        self._open: set[_Writer] = set()

    def add(self, items: list[Any], key: str | None = None) -> None:
        """Adds items, for the commands with this key if it is given."""
        queue = self._items if key is None else self._by_key.setdefault(key, deque())
        queue.extend(items)

    def left(self) -> list[Any]:
        """Returns the items that answered no command."""
        return [*self._items, *(item for queue in self._by_key.values() for item in queue)]

    def disconnect(self) -> None:
        """Closes all connections."""
        for writer in list(self._open):
            writer.end()

    def dial(self) -> tuple[asyncio.StreamReader, _Writer]:
        """Opens a connection, or refuses it."""
        self.dials += 1
        if self._items and self._items[0] == "refuse":
            self._items.popleft()
            raise ConnectionRefusedError(111, "Connection refused")
        self._opened += 1
        writer = _Writer(self, self._opened)
        self._open.add(writer)
        return writer.reader, writer

    def hung_up(self, writer: _Writer) -> None:
        """Forgets a closed connection."""
        self._open.discard(writer)

    def arrived(self, writer: _Writer, words: list[str]) -> None:
        """Answers a command."""
        if words[0] in _HANDSHAKE:
            writer.answer("OK")
            return
        if self.over:
            writer.answer({"error": "ERR the timeline is over"})
            return
        self.generation = writer.number
        item = self.take(words)
        match item:
            case "silent":
                pass
            case "lost" | "close":
                writer.end()
            case {"delay_ms": delay_ms, "reply": reply}:
                asyncio.get_running_loop().call_later(delay_ms / 1000, writer.answer, reply)
            case _:
                writer.answer(item)

    def take(self, words: list[str]) -> Any:
        """Records a command and returns the item that answers it."""
        self.sent.append(" ".join(words))
        for word in words[1:]:
            if self._by_key.get(word):
                return self._by_key[word].popleft()
        if self._items:
            return self._items.popleft()
        self.unexpected.append(" ".join(words)[:80])
        return "silent"


class _Writer:
    """The client's end of a scripted connection, as far as the drivers use it."""

    def __init__(self, script: Script, number: int) -> None:
        self.reader, self.number, self.transport = asyncio.StreamReader(), number, self
        self._script, self._buffer, self._closed = script, b"", False

    def answer(self, reply: Any) -> None:
        if not self._closed:
            self.reader.feed_data(encoded(reply))

    def end(self) -> None:
        """Closes the connection from the server's side."""
        if not self._closed:
            self.close()

    def write(self, data: bytes) -> None:
        if self._closed:
            raise ConnectionResetError("the connection is closed")
        self._buffer += bytes(data)
        while (words := self._command()) is not None:
            self._script.arrived(self, words)

    def _command(self) -> list[str] | None:
        """Removes a complete command from the buffer and returns its words."""
        head, separator, rest = self._buffer.partition(b"\r\n")
        if not separator:
            return None
        words = []
        for _ in range(int(head[1:])):
            length, separator, rest = rest.partition(b"\r\n")
            size = int(length[1:]) if separator else 0
            if not separator or len(rest) < size + 2:
                return None
            words.append(rest[:size].decode())
            rest = rest[size + 2 :]
        self._buffer = rest
        return words

    def writelines(self, lines: list[bytes]) -> None:
        self.write(b"".join(lines))

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self._closed = True
        self._script.hung_up(self)
        self.reader.feed_eof()

    abort = close

    async def wait_closed(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Seam:
    """A sync transport over a script, with a clock that moves while a call waits."""

    def __init__(self, driver: str, script: Script) -> None:
        self._script, self._now_s = script, 0.0
        self._errors = importlib.import_module(f"{driver}.exceptions")
        parsers = importlib.import_module(f"{driver}._parsers.resp2")
        self._parse_error = parsers._RESP2Parser(4096).parse_error

    def now(self) -> float:
        return round(self._now_s, 6)

    def advance(self, seconds: float) -> None:
        self._now_s += seconds

    def node(self, key: str) -> None:
        return None

    def close(self) -> None:
        pass

    def call(self, node: None, args: tuple[str, ...], timeout_s: float) -> Any:
        if self._script.over:
            raise self._errors.ConnectionError("the timeline is over")
        item, wait_s = self._script.take(list(args)), 0.0
        if isinstance(item, dict) and "reply" in item:
            item, wait_s = item["reply"], item["delay_ms"] / 1000
        if item == "silent" or wait_s >= timeout_s:
            self.advance(timeout_s)
            raise Unavailable("no answer in time", "timeout")
        self.advance(wait_s)
        if item in ("lost", "close"):
            raise self._errors.ConnectionError("Connection closed by server.")
        if isinstance(item, dict):
            raise self._parse_error(item["error"])
        return item.encode() if isinstance(item, str) else item


def scripted_client(driver: str, script: Script) -> Any:
    """Returns a client of the driver whose connections lead to the script."""
    package = importlib.import_module(f"{driver}.asyncio")

    class Connection(package.Connection):  # type: ignore[misc, name-defined]
        async def _connect(self) -> None:
            self._reader, self._writer = script.dial()

    pool = package.ConnectionPool(connection_class=Connection, protocol=2)
    return getattr(package, driver.capitalize())(connection_pool=pool)
