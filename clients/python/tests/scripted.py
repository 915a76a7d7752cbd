"""Scripted connections for the timelines: a driver's connection whose server follows a script."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from types import SimpleNamespace
from typing import Any

from redis_throttle_client._net.slots import READ

from .nodes import Nodes

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
    """A server that replies to each command with the next item of its script.

    ``sent`` has the commands that arrived, ``dials`` the number of attempts to connect, and
    ``generation`` the number of the connection on which the last command arrived. ``nodes`` are
    those of a cluster, by subject: the digit at the end of a subject is its slot.
    """

    def __init__(self, nodes: dict[str, str] | None = None) -> None:
        self.nodes = nodes
        self.sent: list[str] = []
        self.dials = self.generation = self._opened = 0
        self.over = False
        self.unexpected: list[str] = []
        self._items: deque[Any] = deque()
        self._by_key: dict[str, deque[Any]] = {}
        self._open: set[_End] = set()

    def add(self, items: list[Any], key: str | None = None) -> None:
        """Adds items, for the commands with this key if it is given."""
        queue = self._items if key is None else self._by_key.setdefault(key, deque())
        queue.extend(items)

    def left(self) -> list[Any]:
        """Returns the items that were the reply to no command."""
        return [*self._items, *(item for queue in self._by_key.values() for item in queue)]

    def disconnect(self) -> None:
        """Closes all connections."""
        for writer in list(self._open):
            writer.end()

    def dial(self) -> float:
        """Begins to open a connection, or refuses it. Returns the seconds that it takes."""
        self.dials += 1
        if self._items and self._items[0] == "refuse":
            self._items.popleft()
            raise ConnectionRefusedError(111, "Connection refused")
        if self._items and isinstance(self._items[0], dict) and "dial_ms" in self._items[0]:
            taken_s: float = self._items.popleft()["dial_ms"] / 1000
            return taken_s
        return 0.0

    def opened(self, end: _End) -> None:
        """Notes an open connection."""
        self._opened += 1
        end.number = self._opened
        self._open.add(end)

    def hung_up(self, writer: _End) -> None:
        """Forgets a closed connection."""
        self._open.discard(writer)

    def arrived(self, writer: _End, words: list[str]) -> None:
        """Replies to a command."""
        if words[0] in _HANDSHAKE:
            writer.reply("OK")
            return
        if tuple(words) == READ:
            slots = {slot_of(subject): node for subject, node in (self.nodes or {}).items()}
            writer.reply([[slot, slot, [*address_of(node), "id"]] for slot, node in slots.items()])
            return
        if self.over:
            writer.reply({"error": "ERR the timeline is over"})
            return
        self.generation = writer.number
        item = self.take(words, writer.node)
        match item:
            case "silent":
                pass
            case "lost" | "close":
                writer.end()
            case {"delay_ms": delay_ms, "reply": reply}:
                writer.reply_later(delay_ms / 1000, reply)
            case _:
                writer.reply(item)

    def take(self, words: list[str], node: str = "") -> Any:
        """Records a command and returns the item that is its reply."""
        self.sent.append(" ".join([node, *words]).strip())
        for word in words[1:]:
            if self._by_key.get(word):
                return self._by_key[word].popleft()
        if self._items:
            return self._items.popleft()
        self.unexpected.append(" ".join(words)[:80])
        return "silent"


class _End:
    """The client's end of a scripted connection."""

    number = 0

    def __init__(self, script: Script, connection: Any) -> None:
        self._script, self._unparsed, self._closed = script, b"", False
        # Empty without a cluster.
        self.node = f"{connection.host}:{connection.port}" if script.nodes else ""

    def reply(self, reply: Any) -> None:
        raise NotImplementedError

    def reply_later(self, delay_s: float, reply: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._closed = True
        self._script.hung_up(self)

    def end(self) -> None:
        """Closes the connection from the server's side."""
        if not self._closed:
            self.close()

    def write(self, data: bytes) -> None:
        if self._closed:
            raise ConnectionResetError("the connection is closed")
        self._unparsed += bytes(data)
        while (words := self._command()) is not None:
            self._script.arrived(self, words)

    def _command(self) -> list[str] | None:
        """Removes a complete command from the buffer and returns its words."""
        head, separator, rest = self._unparsed.partition(b"\r\n")
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
        self._unparsed = rest
        return words


class _Writer(_End):
    """A connection of asyncio, as far as the drivers use it."""

    def __init__(self, script: Script, connection: Any) -> None:
        super().__init__(script, connection)
        self.reader, self.transport = asyncio.StreamReader(), self

    def reply(self, reply: Any) -> None:
        if not self._closed:
            self.reader.feed_data(encoded(reply))

    def reply_later(self, delay_s: float, reply: Any) -> None:
        asyncio.get_running_loop().call_later(delay_s, self.reply, reply)

    def writelines(self, lines: list[bytes]) -> None:
        self.write(b"".join(lines))

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        super().close()
        self.reader.feed_eof()

    abort = close

    async def wait_closed(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Clock:
    """A clock for threads, which moves while a call waits."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return round(self._now_s, 6)

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


class _Socket(_End):
    """A connection of a thread. Its reads move the clock to what comes, or to their timeout."""

    # Reads with this timeout do not wait.
    _AT_ONCE_S = 0.001

    def __init__(self, script: Script, connection: Any, clock: Clock) -> None:
        super().__init__(script, connection)
        self._clock, self._timeout_s = clock, 0.0
        self._coming: deque[tuple[float, bytes]] = deque()
        self._unread = b""

    def reply(self, reply: Any) -> None:
        self.reply_later(0, reply)

    def reply_later(self, delay_s: float, reply: Any) -> None:
        self._coming.append((self._clock.monotonic() + delay_s, encoded(reply)))

    def settimeout(self, seconds: float | None) -> None:
        self._timeout_s = seconds or 0

    def sendall(self, data: bytes) -> None:
        self.write(data)

    def recv(self, size: int) -> bytes:
        if not self._unread and not self._closed:
            self._receive()
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def _receive(self) -> None:
        waits_s = self._timeout_s if self._timeout_s > self._AT_ONCE_S else 0.0
        now_s = self._clock.monotonic()
        if not self._coming or self._coming[0][0] > now_s + waits_s + 1e-9:
            self._clock.sleep(waits_s)
            raise TimeoutError
        due_s, self._unread = self._coming.popleft()
        self._clock.sleep(max(0.0, due_s - now_s))

    def recv_into(self, buffer: Any) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def fileno(self) -> int:
        return -1

    def shutdown(self, how: int) -> None:
        self.end()


def address_of(node: str) -> tuple[str, int]:
    """Returns the host and port of a node of a timeline."""
    host, _, port = node.partition(":")
    return host, int(port)


def slot_of(text: str) -> int:
    """Returns the slot of a subject, or of a key."""
    return int(text[-1])


def _client(package: Any, driver: str, script: Script, connection: type) -> Any:
    """Returns a client of a server, or of a cluster if the script has nodes."""
    kwargs = {"protocol": 2, **without_login(driver)}
    if script.nodes is None:
        pool = package.ConnectionPool(connection_class=connection, **kwargs)
        return getattr(package, driver.capitalize())(connection_pool=pool)
    # redis-py 8 has one parser for servers and clusters.
    cluster = importlib.import_module(f"{package.__name__}.cluster")
    if hasattr(cluster, "ClusterParser"):
        kwargs["parser_class"] = cluster.ClusterParser
    # The module says whether the client is one of asyncio.
    kind: Any = type(
        "Cluster", (Nodes,), {"__module__": package.__name__, "keyslot": staticmethod(slot_of)}
    )
    nodes = kind(
        SimpleNamespace(Connection=connection), *map(address_of, script.nodes.values()), **kwargs
    )
    # Clients of threads read the map when they are created.
    nodes.nodes_manager.slots_cache |= {
        slot_of(subject): [node]
        for subject, node in zip(script.nodes, nodes.get_nodes(), strict=True)
    }
    return nodes


def without_login(driver: str) -> Any:
    """Returns options with which a driver sends no command when it opens a connection."""
    return {f"{driver}_connect_func": lambda connection: connection._parser.on_connect(connection)}


def scripted_client(driver: str, script: Script) -> Any:
    """Returns a client of the driver whose connections lead to the script."""
    package = importlib.import_module(f"{driver}.asyncio")

    class Connection(package.Connection):  # type: ignore[misc, name-defined]
        async def _connect(self) -> None:
            taken_s = script.dial()
            if taken_s:
                await asyncio.sleep(taken_s)
            writer = _Writer(script, self)
            script.opened(writer)
            self._reader, self._writer = writer.reader, writer

    return _client(package, driver, script, Connection)


def scripted_sync_client(driver: str, script: Script, clock: Clock) -> Any:
    """The same for threads, on the clock of a timeline."""
    package = importlib.import_module(driver)

    class Connection(package.Connection):  # type: ignore[misc, name-defined]
        def _connect(self) -> Any:
            script.dial()
            opened = _Socket(script, self, clock)
            script.opened(opened)
            return opened

        def can_read(self, timeout: float = 0) -> bool:
            return self._sock is None or self._sock._closed

    return _client(package, driver, script, Connection)
