"""Sockets for asyncio: each event loop has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ._dial import Dial, Node
from ._errors import Unavailable, is_mistake


class AsyncSockets:
    """The idle connections to one server, those of each event loop apart."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, most
        self._of_loop: dict[asyncio.AbstractEventLoop, list[Any]] = {}
        self._late: set[asyncio.Task[Any]] = set()

    @property
    def _idle(self) -> list[Any]:
        loop = asyncio.get_running_loop()
        idle = self._of_loop.get(loop)
        if idle is None:
            # Sockets of a loop that was closed around them can be used no more.
            for closed in [known for known in list(self._of_loop) if known.is_closed()]:
                self._of_loop.pop(closed, None)
            idle = self._of_loop.setdefault(loop, [])
        return idle

    async def call(self, args: tuple[str, ...], *, asking: bool = False) -> Any:
        """Sends the call on one connection and reads its reply; the caller has the deadline."""
        connection = await self._take()
        try:
            if asking:
                await self._exchange(connection, ("ASKING",))
            reply = await self._exchange(connection, args)
        except self._dial.response_error as error:
            # As with threads: a server that cannot decide now is left.
            if is_mistake(error):
                await self._give(connection)
            else:
                await connection.disconnect(nowait=True)
            raise error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        await self._give(connection)
        return reply

    @staticmethod
    async def _exchange(connection: Any, args: tuple[str, ...]) -> Any:
        await connection.send_packed_command(connection.pack_command(*args), check_health=False)
        return await connection.read_response()

    async def _take(self) -> Any:
        idle = self._idle
        while idle:
            connection = idle.pop()
            reader = connection._reader
            if connection.is_connected and reader is not None and not reader.at_eof():
                return connection
            await connection.disconnect(nowait=True)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._keep)
            raise

    async def _connect(self) -> Any:
        connection = self._make()
        try:
            async with asyncio.timeout(self._dial.patience_s):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _keep(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._idle.append(task.result())

    async def _give(self, connection: Any) -> None:
        idle = self._idle
        if connection.is_connected and len(idle) < self._most:
            idle.append(connection)
        else:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Closes what is idle, and waits for nothing."""
        loop = asyncio.get_running_loop()
        for task in [task for task in self._late if task.get_loop() is loop]:
            task.cancel()
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)


async def in_time(awaitable: Awaitable[Any], timeout_s: float) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            return await awaitable
    except TimeoutError as error:
        raise Unavailable(f"no answer within {timeout_s * 1000:g} ms") from error


class AsyncServerTransport:
    """One server, from a ``redis.asyncio.Redis`` or ``valkey.asyncio.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, timeout_s, wait=True)
        self._sockets = AsyncSockets(dial.to(None), dial, most)

    def node(self, key: str) -> Node:
        """There is one."""
        return None

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply."""
        return await in_time(self._sockets.call(args), timeout_s)

    async def close(self) -> None:
        """Closes the sockets."""
        await self._sockets.close()
