"""Sockets for asyncio: each event loop has its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ._deadline import Deadline, by, instant
from ._dial import MOST_DIALS, MOST_SOCKETS, Dial, Node
from ._errors import Unsent, is_rejection


class _Pool:
    """The connections of one event loop, and the queue of calls that wait for one."""

    def __init__(self) -> None:
        self.idle: list[Any] = []
        self.waiters: deque[asyncio.Future[Any]] = deque()
        self.dials: set[asyncio.Task[Any]] = set()
        self.open = 0
        self.closed = False

    def offer(self, connection: Any) -> None:
        """Gives the connection to the call that has waited longest, or stores it as idle."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self.idle.append(connection)

    def refuse(self, error: BaseException) -> None:
        """Raises the error in the call that has waited longest."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
                return


async def _hang_up(connection: Any) -> None:
    """Closes the connection without TLS's closing handshake, which would wait for the server."""
    writer = connection._writer
    await connection.disconnect(nowait=True)
    if writer is not None:
        writer.transport.abort()


class AsyncSockets:
    """The connections to one server, with a separate set for each event loop."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, min(most, MOST_SOCKETS)
        self._of_loop: dict[asyncio.AbstractEventLoop, _Pool] = {}

    @property
    def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._of_loop.get(loop)
        if pool is None:
            # Drop the sockets of closed loops, which cannot be used any more.
            for closed in [known for known in list(self._of_loop) if known.is_closed()]:
                self._of_loop.pop(closed, None)
            pool = self._of_loop.setdefault(loop, _Pool())
        return pool

    async def call(self, args: tuple[str, ...], deadline: float, *, asking: bool = False) -> Any:
        """Sends the call on one connection, and reads the reply by ``deadline``, in loop time."""
        pool = self._pool
        connection = await self._take(pool, deadline)
        try:
            reply = await by(deadline, self._exchange(connection, args, asking))
        except self._dial.response_error as error:
            # As with threads, the connection to a server that cannot decide now is dropped.
            if is_rejection(error):
                await self._give(pool, connection)
            else:
                await self._drop(pool, connection)
            raise error
        except BaseException:
            await self._drop(pool, connection)
            raise
        await self._give(pool, connection)
        return reply

    @staticmethod
    async def _exchange(connection: Any, args: tuple[str, ...], asking: bool) -> Any:
        for sent in (("ASKING",), args) if asking else (args,):
            packed = connection.pack_command(*sent)
            await connection.send_packed_command(packed, check_health=False)
            reply = await connection.read_response()
        return reply

    async def _take(self, pool: _Pool, deadline: float) -> Any:
        while pool.idle:
            connection = pool.idle.pop()
            reader = connection._reader
            if connection.is_connected and reader is not None and not reader.at_eof():
                return connection
            await self._drop(pool, connection)
        if pool.closed:
            raise Unsent("the limiter is closed")
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pool.waiters.append(waiter)
        self._dial_more(pool, 1)
        try:
            async with Deadline(deadline):
                return await waiter
        except (TimeoutError, asyncio.CancelledError) as error:
            with contextlib.suppress(ValueError):
                pool.waiters.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # The waiter got a connection in the same turn of the loop, so pass the connection
                # on.
                pool.offer(waiter.result())
            if isinstance(error, TimeoutError):
                raise Unsent("no connection in time") from error
            raise

    def _dial_more(self, pool: _Pool, more: int = 0) -> None:
        """Opens connections for the waiting calls, at least ``more`` besides those being opened."""
        if pool.closed:
            return
        wanted = min(max(len(pool.waiters), len(pool.dials) + more), MOST_DIALS)
        while len(pool.dials) < wanted and pool.open + len(pool.dials) < self._most:
            dial = asyncio.get_running_loop().create_task(self._connect())
            pool.dials.add(dial)
            dial.add_done_callback(partial(self._dialled, pool))

    async def _connect(self) -> Any:
        connection = self._make()
        try:
            async with asyncio.timeout(self._dial.patience_s):
                await connection.connect()
        except BaseException:
            await _hang_up(connection)
            raise
        return connection

    def _dialled(self, pool: _Pool, dial: asyncio.Task[Any]) -> None:
        """Ends the opening of a connection. A late connection serves the next caller."""
        pool.dials.discard(dial)
        if dial.cancelled():
            return
        error = dial.exception()
        if error is None:
            pool.open += 1
            pool.offer(dial.result())
        elif pool.open:
            # If the server accepts no more connections, the waiters use those that are open.
            return
        else:
            pool.refuse(error)
        self._dial_more(pool)

    async def _give(self, pool: _Pool, connection: Any) -> None:
        if connection.is_connected and not pool.closed:
            pool.offer(connection)
        else:
            await self._drop(pool, connection)

    async def _drop(self, pool: _Pool, connection: Any) -> None:
        pool.open -= 1
        self._dial_more(pool)
        await _hang_up(connection)

    async def close(self) -> None:
        """Closes idle connections and those being opened. Others are closed after their call."""
        pool = self._pool
        del self._of_loop[asyncio.get_running_loop()]
        pool.closed = True
        while pool.waiters:
            pool.refuse(Unsent("the limiter is closed"))
        if pool.dials:
            for dial in pool.dials:
                dial.cancel()
            # A connection that has just been opened becomes idle only one turn of the loop later.
            await asyncio.wait(set(pool.dials), timeout=self._dial.patience_s)
        while pool.idle:
            await self._drop(pool, pool.idle.pop())


class AsyncServerTransport:
    """One server, from a ``redis.asyncio.Redis`` or ``valkey.asyncio.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, timeout_s, wait=True)
        self._sockets = AsyncSockets(dial.to(None), dial, most)

    def node(self, key: str) -> Node:
        """Returns None, because there is only one node."""
        return None

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """Sends a call and returns its reply."""
        return await self._sockets.call(args, instant(timeout_s))

    async def close(self) -> None:
        """Closes the sockets."""
        await self._sockets.close()
