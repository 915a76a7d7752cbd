"""The connections of asyncio to a node: each event loop has its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from .._rules.errors import (
    LimiterClosed,
    counted,
)
from .._rules.options import Bounds
from .._wire.call import Call
from .breaker import Breaker, Breakers
from .connection import AsyncLink, hang_up
from .dial import Login, Node
from .fork import forgets
from .line import Waiter
from .pool import Dialling
from .traffic import Traffic

# The turns of the loop that it takes to read a reply, to parse it, and to wake the caller.
_TURNS = 4


class _Waiter(Waiter):
    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(call)
        self.ended: asyncio.Future[Any] = loop.create_future()

    @property
    def has_left(self) -> bool:
        return self.ended.done()

    def resolve(self, result: Any) -> None:
        if not self.ended.done():
            self.ended.set_result(result)


class _Pool(Traffic[AsyncLink, _Waiter]):
    """The traffic of one event loop to a node."""

    def __init__(
        self, make: Callable[[], Any], bounds: Bounds, breaker: Callable[[], Breaker]
    ) -> None:  # fmt: skip
        super().__init__(bounds, breaker)
        self._make, self.loop = make, asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._rings_at = 0.0
        # Keeps the tasks that dial and those that read replies without a caller.
        self._tasks: set[asyncio.Task[Any]] = set()
        # Set when no call is in flight any more, once the limiter is being closed.
        self._quiet: asyncio.Event | None = None

    # -- calls ---------------------------------------------------------------------------------

    async def call(self, args: tuple[str, ...], call: Call, *, asking: bool) -> Any:
        """Sends a command, and returns the reply or the known denial of the call."""
        while True:
            found = self.find(call, self.loop.time())
            if found is None:
                found = await self._wait(call)
            if not isinstance(found, AsyncLink):
                return found
            # Otherwise it was closed before this task ran.
            if found in self.links:
                break
        self.send(found, call, self.loop.time())
        self._watch(call.left_s)
        return await self._exchange(found, args, asking=asking)

    async def _wait(self, call: Call) -> Any:
        """Waits in line. Returns a connection or the known denial of the call."""
        waiter = _Waiter(call, self.loop)
        self.join(waiter, self.loop.time())
        self._watch(call.left_s)
        try:
            found = await waiter.ended
        except asyncio.CancelledError:
            self.leave(waiter)
            if waiter.ended.done() and not waiter.ended.cancelled():
                found = waiter.ended.result()
                if isinstance(found, AsyncLink):
                    # Pass on a connection that came in the same turn of the loop.
                    self.give(found, self.loop.time())
            raise
        if isinstance(found, Exception):
            raise found
        self.end_wait(waiter, self.loop.time())
        return found

    async def _exchange(self, link: AsyncLink, args: tuple[str, ...], *, asking: bool) -> Any:
        task = asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        link.task = task
        try:
            reply = await link.exchange(args, asking=asking)
        except asyncio.CancelledError:
            link.task = None
            self._leave(link)
            if link.error is not None and task is not None and task.uncancel() <= cancelled:
                raise link.error from None
            raise
        except Exception as error:
            link.task = None
            ended = self._failed(link, error)
            if ended is error:
                raise
            raise ended from error
        link.task = None
        at = self.loop.time()
        self.replied(link, reply, at)
        self.give(link, at)
        self._check_quiet()
        return reply

    def _failed(self, link: AsyncLink, error: Exception) -> Exception:
        failed = self.failed(link, error, self.loop.time())
        self._check_quiet()
        return failed

    def _leave(self, link: AsyncLink) -> None:
        """Lets the command of a caller that has gone drain in a task."""
        if link.call is None:
            return
        self.abandon(link)
        self._start(self._drain(link))
        self._check_quiet()

    async def _drain(self, link: AsyncLink) -> None:
        self._watch(self.bounds.timeout_s)
        try:
            reply = await link.read()
        except Exception as error:
            self._failed(link, error)
        except asyncio.CancelledError:
            self.lose(link, counted("the loop has ended", "connection"), self.loop.time())
            raise
        else:
            self.replied(link, reply, self.loop.time())
            self.give(link, self.loop.time())
            self._check_quiet()

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- time ----------------------------------------------------------------------------------

    def _watch(self, left_s: float) -> None:
        """Starts the timer, which looks at the calls that wait. It runs while there are any."""
        if self._timer is not None:
            if self._rings_at <= self.loop.time() + left_s:
                return
            self._timer.cancel()
        self._set(min(self.bounds.tick_s, left_s))

    def _set(self, after_s: float) -> None:
        self._rings_at = self.loop.time() + after_s
        self._timer = self.loop.call_at(self._rings_at, self._ring, _TURNS)

    def _ring(self, turns: int) -> None:
        # What has arrived is read first.
        if turns and self.is_due(self.loop.time()):
            self._timer = self.loop.call_soon(self._ring, turns - 1)
            return
        self._timer = None
        after_s = self.look(self.loop.time())
        if self.is_busy and self._timer is None:
            self._set(after_s)

    # -- connections ---------------------------------------------------------------------------

    def _dial(self, dialling: Dialling, patience_s: float) -> bool:
        dialling.stop = self._start(self._connect(dialling, patience_s)).cancel
        return True

    async def _connect(self, dialling: Dialling, patience_s: float) -> None:
        connection = self._make()
        connection.socket_connect_timeout = patience_s
        login = dialling.login = Login(connection)
        login.watch()
        try:
            await connection.connect()
        except BaseException as error:
            await hang_up(connection)
            if not isinstance(error, Exception):
                raise
            self.dial_failed(dialling, error, self.loop.time())
            return
        finally:
            login.end()
        self.dialled(dialling, AsyncLink(connection), login.is_heard, self.loop.time())

    def _is_usable(self, link: AsyncLink) -> bool:
        return link.is_open

    def _hang_up(self, link: AsyncLink) -> None:
        link.close()

    def _interrupt(self, link: AsyncLink) -> None:
        if link.task is not None:
            link.task.cancel()

    # -- the end -------------------------------------------------------------------------------

    async def quiet(self, timeout_s: float) -> None:
        """Ends the calls in line, and waits for those in flight."""
        self.end_line(LimiterClosed, kept=False)
        self._quiet = asyncio.Event()
        self._check_quiet()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()

    def _check_quiet(self) -> None:
        if self._quiet is not None and self.is_quiet:
            self._quiet.set()

    async def close(self) -> None:
        """Closes all connections, and those being opened."""
        self.is_closed = True
        self.end_line(LimiterClosed)
        self.retire(self.loop.time(), LimiterClosed())
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        # The calls that this interrupts begin to drain, and then give back what they may have
        # taken.
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self.bounds.dial_s)

    def close_idle(self) -> None:
        """Closes the connections that no call uses. Others are closed when their call ends."""
        self.is_closed = True
        for link in list(self.idle):
            self.drop(link, self.loop.time())


_parents: list[Any] = []


class AsyncSockets:
    """The connections to one node, with a separate pool for each event loop."""

    def __init__(
        self, make: Callable[[], Any], bounds: Bounds, breakers: Breakers, node: Node
    ) -> None:  # fmt: skip
        self._make, self._bounds = make, bounds
        self._breakers, self._node = breakers, node
        self._of_loop: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._is_left = False
        forgets(self)

    def begin(self) -> None:
        """Forgets the connections, also after a fork: a child must not use those of its parent."""
        # Do not drop the last reference to them: the driver would take them off the parent's loop.
        _parents.append(self._of_loop)
        self._of_loop = {}

    @property
    def pool(self) -> _Pool:
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._of_loop.get(loop)
        if pool is None:
            # Drop the sockets of closed loops, which cannot be used any more.
            for closed in [known for known in list(self._of_loop) if known.is_closed()]:
                self._of_loop.pop(closed, None)
            new = _Pool(self._make, self._bounds, lambda: self._breakers.of(self._node))
            new.is_closed = self._is_left
            pool = self._of_loop.setdefault(loop, new)
        return pool

    async def call(self, args: tuple[str, ...], call: Call, *, asking: bool = False) -> Any:
        """Sends a command, and returns the reply or the known denial of the call."""
        return await self.pool.call(args, call, asking=asking)

    @property
    def is_up(self) -> bool:
        """True if this event loop has an open connection."""
        return bool(self.pool.links)

    async def quiet(self, timeout_s: float) -> None:
        """Ends the calls in line, and waits for those in flight."""
        await self.pool.quiet(timeout_s)

    async def close(self) -> None:
        """Closes the connections."""
        pool = self.pool
        del self._of_loop[pool.loop]
        await pool.close()
        await self.leave()
        self._of_loop.clear()

    async def leave(self) -> None:
        """Closes the connections of all loops, each as soon as no call uses it."""
        self._is_left = True
        for loop, pool in list(self._of_loop.items()):
            if loop is asyncio.get_running_loop():
                pool.close_idle()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(pool.close_idle)
