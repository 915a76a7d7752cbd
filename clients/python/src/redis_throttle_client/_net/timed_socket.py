"""A socket of a thread, whose waits end with the call that uses it."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterable
from typing import Any

# The most bytes of one reading.
_MOST_BYTES = 65_536
# The shortest wait, and the longest one of a send on a socket that is not polled.
LEAST_S, _SEND_S = 0.001, 1.0


class TimedSocket:
    """A socket whose reads end when its call has ended, also if signals interrupt them."""

    def __init__(self, plain: Any) -> None:
        self._socket = plain
        # Bytes that were read, but not by the driver, which reads them first.
        self._unread = b""
        # Looks at the time, and returns that until the next look. Raises the error of a call that
        # has ended. None: nothing waits.
        self._look: Callable[[], float] | None = None
        self._slice_s, self._looks_at = 0.0, 0.0
        # True from the reading of bytes that have arrived to the next wait. Meanwhile this thread
        # may wait for the interpreter, and the bytes are neither here nor in the socket.
        self.is_reading = False
        # TLS sockets and those of gevent and eventlet wait by themselves, by Python's timeouts.
        # Other sockets are polled: one system call to send, and two to read.
        self.is_polled = type(plain).__module__ == "socket" and hasattr(select, "poll")
        if self.is_polled:
            plain.setblocking(False)
            self._readable, self._writable = select.poll(), select.poll()
            self._readable.register(plain, select.POLLIN)
            self._writable.register(plain, select.POLLOUT)

    def begin(self, look: Callable[[], float], slice_s: float, at: float) -> None:
        """Begins to wait, with a look at the time after each ``slice_s``."""
        self._look, self._slice_s, self._looks_at = look, slice_s, at + slice_s
        self.is_reading = False

    def end(self) -> None:
        """Ends that. The driver may look for unexpected data without a wait."""
        self._look = None

    def _pause(self) -> None:
        """Looks at the time after a slice in which nothing came."""
        if self._look is None:
            raise TimeoutError("nothing has arrived")
        self._slice_s = max(LEAST_S, self._look())
        self._looks_at = time.monotonic() + self._slice_s

    def _read(self, read: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        while True:
            self.is_reading = False
            if self.is_polled:
                while not self._readable.poll(0 if self._look is None else self._slice_s * 1000):
                    self._pause()
                self.is_reading = True
            else:
                self._socket.settimeout(LEAST_S if self._look is None else self._slice_s)
            try:
                came = read(*args)
                self.is_reading = True
                return came
            except BlockingIOError:
                pass
            except TimeoutError:
                # Of a socket that is not polled.
                self._pause()

    def _read_more(self, read: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Reads the rest of a reply, which may arrive byte by byte."""
        if self._look is not None and time.monotonic() >= self._looks_at:
            self._pause()
        return self._read(read, args)

    def recv(self, *args: Any) -> Any:
        """Reads bytes."""
        if self._unread:
            most = args[0]
            unread, self._unread = self._unread[:most], self._unread[most:]
            return unread
        return self._read_more(self._socket.recv, args)

    def recv_into(self, *args: Any) -> Any:
        """Reads bytes into a buffer."""
        if self._unread:
            unread = self.recv(len(args[0]))
            args[0][: len(unread)] = unread
            return len(unread)
        return self._read_more(self._socket.recv_into, args)

    def integers(self) -> list[int] | None:
        """Reads a reply and returns its integers; None, without reading it, if it is another one.

        Most replies have a few integers. The driver takes several times as long to read them.
        """
        read = self._read(self._socket.recv, (_MOST_BYTES,))
        if read[:1] == b"*" and read[-2:] == b"\r\n":
            size, *integers = read[1:-2].split(b"\r\n:")
            with contextlib.suppress(ValueError):
                if int(size) == len(integers):
                    return list(map(int, integers))
        self._unread = read
        return None

    def sendall(self, data: Any) -> None:
        """Sends all bytes."""
        if not self.is_polled:
            # A send that was interrupted cannot be continued.
            self._socket.settimeout(None if self._look is None else _SEND_S)
            self._socket.sendall(data)
            return
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                # Python repeats an interrupted poll with the time that is left.
                while not self._writable.poll(self._slice_s * 1000):
                    self._pause()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    @property
    def has_decrypted(self) -> bool:
        """True if TLS has bytes that were not read yet, which no poll of the socket shows."""
        pending = getattr(self._socket, "pending", None)
        return pending is not None and pending() > 0


def readable(sockets: Iterable[TimedSocket]) -> list[TimedSocket]:
    """Returns the sockets that can be read, with one system call for all of them."""
    found, polled = [], dict[int, TimedSocket]()
    for one in sockets:
        number = one.fileno()
        if number < 0 or one.has_decrypted:
            found.append(one)
        else:
            polled[number] = one
    if not polled:
        return found
    if hasattr(select, "poll"):
        poll = select.poll()
        for number in polled:
            poll.register(number, select.POLLIN)
        return found + [polled[number] for number, _ in poll.poll(0)]
    return found + [polled[number] for number in select.select(list(polled), [], [], 0)[0]]
