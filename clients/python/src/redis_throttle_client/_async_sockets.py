"""Sockets for asyncio: each event loop has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ._deadline import Deadline, by, has_passed, instant
from ._dial import Dial, Node
from ._errors import Unavailable, Undialled, Unsent, is_reply, retires
from ._fork import forgets
from ._protocol import Kept, packed
from ._queue import Pace, Queue


class _Pool:
    """The connections of one event loop, and the queue of calls that wait for one."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.idle: list[Any] = []
        # The open connections, and the generation of each.
        self.generations: dict[Any, int] = {}
        # The time that the dial of a connection took, until the connection is idle or used.
        self.dials_s: dict[Any, float] = {}
        self.waiters: Queue[asyncio.Future[Any]] = Queue()
        self.dials: set[asyncio.Task[Any]] = set()
        self.closed = False

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self.generations)

    def offer(self, connection: Any) -> None:
        """Gives the connection to the call that has waited longest, or stores it as idle."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self.dials_s.pop(connection, None)
        self.idle.append(connection)

    def refuse(self, error: Exception) -> None:
        """Ends all waiting calls, because no connection could be opened."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
                error = self.pace.refused()


async def _hang_up(connection: Any) -> None:
    """Closes the connection without TLS's closing handshake, which would wait for the server."""
    writer = connection._writer
    await connection.disconnect(nowait=True)
    if writer is not None:
        writer.transport.abort()


async def ask_once_in_loop(make: Callable[[], Any], args: tuple[str, ...], timeout_s: float) -> Any:
    """Opens a connection for one call, and returns the reply."""
    connection = make()
    try:
        async with asyncio.timeout(timeout_s):
            await connection.connect()
            return await _exchange(connection, args)
    finally:
        await _hang_up(connection)


async def _exchange(connection: Any, args: tuple[str, ...], *, asking: bool = False) -> Any:
    for sent in (("ASKING",), args) if asking else (args,):
        await connection.send_packed_command([packed(sent)], check_health=False)
        reply = await connection.read_response(disconnect_on_error=False)
    return reply


_parents: list[Any] = []


class AsyncSockets:
    """The connections to one server, with a separate set for each event loop."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, most
        self._of_loop: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._is_left = False
        forgets(self)

    def begin(self) -> None:
        """Forgets the connections, also after a fork: a child must not use those of its parent."""
        # Do not drop the last reference to them: the driver would take them off the parent's loop.
        _parents.append(self._of_loop)
        self._of_loop = {}

    @property
    def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._of_loop.get(loop)
        if pool is None:
            # Drop the sockets of closed loops, which cannot be used any more.
            for closed in [known for known in list(self._of_loop) if known.is_closed()]:
                self._of_loop.pop(closed, None)
            pool = self._of_loop.setdefault(loop, _Pool(Pace(self._dial)))
        return pool

    async def call(self, args: tuple[str, ...], deadline: float, *, asking: bool = False) -> Any:
        """Sends the call on one connection, and reads the reply by ``deadline``, in loop time."""
        pool = self._pool
        connection = await self._take(pool, deadline, lease=isinstance(args, Kept))
        generation = pool.generations[connection]
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            await self._give(pool, connection)
            raise Unsent
        if left_s < pool.dials_s.get(connection, 0):
            await self._give(pool, connection)
            raise Unavailable("the dial left too little time for the call", "timeout")
        pool.dials_s.pop(connection, None)
        try:
            reply = await by(deadline, _exchange(connection, args, asking=asking))
        except BaseException as error:
            if is_reply(error) and not retires(error):
                await self._give(pool, connection)
                raise
            late = isinstance(error, Unavailable) or has_passed(deadline)
            ends_all = isinstance(error, Unavailable) or retires(error)
            first = ends_all and await self._retire(pool, generation, connection)
            await self._drop(pool, connection)
            if first or generation == pool.pace.generation:
                raise
            ended = pool.pace.ended(error, late=late)
            if ended is None:
                raise
            raise ended from error
        await self._give(pool, connection)
        return reply

    @property
    def is_up(self) -> bool:
        """True if this event loop has an open connection."""
        return bool(self._pool.generations)

    async def _retire(self, pool: _Pool, generation: int, by: Any) -> bool:
        """Closes all connections of this generation, and ends their calls.

        Returns False if another call has done so. The caller drops its own connection, ``by``.
        """
        if not pool.pace.retire(generation):
            return False
        idle, pool.idle = pool.idle, []
        for dial in pool.dials:
            dial.cancel()
        pool.dials.clear()
        for connection in list(pool.generations):
            if connection is not by and connection not in idle and connection._writer is not None:
                # Its call reads the end of the connection, and drops it.
                connection._writer.transport.abort()
        for connection in idle:
            await self._drop(pool, connection)
        return True

    async def _take(self, pool: _Pool, deadline: float, *, lease: bool = False) -> Any:
        while pool.idle:
            connection = pool.idle.pop()
            reader = connection._reader
            if connection.is_connected and reader is not None and not reader.at_eof():
                return connection
            await self._drop(pool, connection)
        if pool.closed:
            raise Undialled("the limiter is closed")
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pool.waiters.append(waiter, lease=lease)
        self._dial_more(pool, begins=True)
        if not pool.open and not pool.dials:
            pool.waiters.discard(waiter)
            raise pool.pace.refused()
        try:
            async with Deadline(deadline):
                return await waiter
        except (TimeoutError, asyncio.CancelledError) as error:
            pool.waiters.discard(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # The waiter got a connection in the same turn of the loop, so pass the connection
                # on.
                await self._give(pool, waiter.result())
            if isinstance(error, TimeoutError):
                raise Unsent from error
            raise

    def _dial_more(self, pool: _Pool, *, begins: bool = False) -> None:
        """Opens connections for the waiting calls; see :meth:`Pace.begins_dial`."""
        loop = asyncio.get_running_loop()
        most = pool.waiters.most(self._most)
        while (
            not pool.closed
            and pool.open + len(pool.dials) < most
            and pool.pace.begins_dial(
                loop.time(), len(pool.waiters), pool.open, len(pool.dials), begins=begins
            )
        ):
            dial = loop.create_task(self._connect(pool, loop.time()))
            pool.dials.add(dial)
            dial.add_done_callback(pool.dials.discard)
            begins = False

    async def _connect(self, pool: _Pool, began: float) -> None:
        """Opens a connection. A late connection serves the next caller."""
        connection, generation, failure = self._make(), pool.pace.generation, None
        try:
            async with asyncio.timeout(self._dial.patience_s):
                await connection.connect()
        except BaseException as error:
            await _hang_up(connection)
            if not isinstance(error, Exception):
                raise
            failure = error
        pool.dials.discard(asyncio.current_task())
        if generation != pool.pace.generation:
            # The node may be another one than at the beginning of the attempt.
            await _hang_up(connection)
        elif failure is None:
            pool.generations[connection] = generation
            pool.dials_s[connection] = asyncio.get_running_loop().time() - began
            pool.offer(connection)
        else:
            pool.pace.failed(began, failure)
            if not pool.open and not pool.dials:
                # If connections are open, or other attempts under way, the waiters use those.
                pool.refuse(failure)
        self._dial_more(pool)
        await self._close_left(pool)

    async def _give(self, pool: _Pool, connection: Any) -> None:
        current = pool.generations.get(connection) == pool.pace.generation
        if current and connection.is_connected and not pool.closed:
            pool.offer(connection)
        else:
            await self._drop(pool, connection)
        await self._close_left(pool)

    async def _drop(self, pool: _Pool, connection: Any) -> None:
        pool.generations.pop(connection, None)
        pool.dials_s.pop(connection, None)
        self._dial_more(pool)
        await _hang_up(connection)

    async def close(self) -> None:
        """Closes idle connections and those being opened. Others are closed after their call."""
        pool = self._pool
        del self._of_loop[asyncio.get_running_loop()]
        pool.closed = True
        pool.refuse(Undialled("the limiter is closed"))
        if pool.dials:
            for dial in pool.dials:
                dial.cancel()
            # A connection that has just been opened becomes idle only one turn of the loop later.
            await asyncio.wait(set(pool.dials), timeout=self._dial.patience_s)
        await self._close_idle(pool)

    async def leave(self) -> None:
        """Closes the connections of all loops for good, each as soon as no call uses it."""
        self._is_left = True
        for loop, pool in list(self._of_loop.items()):
            if loop is asyncio.get_running_loop():
                await self._close_idle(pool)
            elif not loop.is_closed():
                asyncio.run_coroutine_threadsafe(self._close_idle(pool), loop)

    async def _close_left(self, pool: _Pool) -> None:
        if self._is_left:
            await self._close_idle(pool)

    async def _close_idle(self, pool: _Pool) -> None:
        while pool.idle:
            await self._drop(pool, pool.idle.pop())


class AsyncServerTransport:
    """One server, from a ``redis.asyncio.Redis`` or ``valkey.asyncio.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int, pause_s: float = 1.0) -> None:
        pool = client.connection_pool
        dial = Dial(
            pool.connection_class, pool.connection_kwargs, timeout_s, wait=True, pause_s=pause_s
        )
        self._sockets = AsyncSockets(dial.to(None), dial, most)

    def node(self, key: str) -> Node:
        """Returns None, because there is only one node."""
        return None

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """Sends a call and returns its reply."""
        return await self._sockets.call(args, instant(timeout_s))

    def is_up(self, node: Node) -> bool:
        """Returns True if a connection is open."""
        return self._sockets.is_up

    async def close(self) -> None:
        """Closes the sockets."""
        await self._sockets.close()
