"""A proxy whose connections fall silent, as behind a NAT, a failover or a frozen host."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable


class Proxy:
    """Forwards to a port. After :meth:`silence` no connection gets a byte or an end."""

    def __init__(
        self, port: int, *, tls: ssl.SSLContext | None = None,
        cuts: Callable[[bytes], bool] = lambda request: False,
    ) -> None:  # fmt: skip
        """The reply to a request that ``cuts`` selects is lost: its connection ends."""
        self._to, self._silent, self._tls, self.cuts = port, False, tls, cuts
        self.accepted = 0
        # The seconds before each byte of a reply is passed on, and before each reply, if above 0.
        self.byte_s = self.reply_s = 0.0
        # The replies that were passed on, and the number of the one that is lost instead: its
        # connection ends.
        self.replies = 0
        self.loses: int | None = None
        self._kept: list[socket.socket] = []
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        """Stops all connections without closing them, also those accepted from now on."""
        self._silent = True
        for pair in self._pairs:
            pair.silent = True

    def lead_to(self, port: int) -> None:
        """Forwards new connections to this port. The older ones stay as they are."""
        self._to, self._silent = port, False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._tls is not None:
                    near = self._tls.wrap_socket(near, server_side=True)
                self.accepted += 1
                if self._silent:
                    self._kept.append(near)
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                for one in (near, far):
                    # A handshake of several short commands would wait for acknowledgements.
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pair = _Pair(near, far, self)
                self._pairs.append(pair)
                threading.Thread(target=pair.run, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            pair.end()
        for near in self._kept:
            near.close()


class _Pair:
    def __init__(self, near: socket.socket, far: socket.socket, proxy: Proxy) -> None:
        self._near, self._far, self._proxy, self.silent = near, far, proxy, False
        self._is_cut = False

    def run(self) -> None:
        try:
            self._forward()
        except (OSError, ValueError):
            self.end()

    def _forward(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._near, selectors.EVENT_READ, self._far)
            selector.register(self._far, selectors.EVENT_READ, self._near)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data and (not self.silent or key.fileobj is self._near):
                        return self.end()
                    if not data:
                        selector.unregister(key.fileobj)
                    elif not self.silent:
                        self._pass(data, key.data)

    def _pass(self, data: bytes, to: socket.socket) -> None:
        if to is self._near and self._proxy.reply_s:
            time.sleep(self._proxy.reply_s)
        if to is self._near:
            self._proxy.replies += 1
            if self._is_cut or self._proxy.replies == self._proxy.loses:
                # The server has run the command.
                raise ConnectionResetError("the reply is lost")
        else:
            self._is_cut |= self._proxy.cuts(data)
        if not self._proxy.byte_s or to is self._far:
            to.sendall(data)
            return
        for at in range(len(data)):
            to.sendall(data[at : at + 1])
            time.sleep(self._proxy.byte_s)

    def end(self) -> None:
        for one in (self._near, self._far):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
