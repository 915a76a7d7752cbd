"""The connections to one node, and the dials that open them for the calls in line."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from .._rules.errors import counted, is_rejection, is_temporary, lost
from .._rules.options import Bounds
from .._wire.call import Call
from .breaker import Breaker
from .connection import NEVER, SAME_S, L
from .dial import END_SLOTS, MOST_DIALS, MOST_SOCKETS, RENEWAL_SLOTS, Login
from .line import Line, W

# The longest pause between dials.
_MOST_PAUSE_S = 1.0


class Dialling:
    """An attempt to open a connection, which must end by the instant ``ends``."""

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.login: Login | None = None
        # Ends the attempt.
        self.stop: Callable[[], Any] = lambda: None


class Connections(Line[L, W]):
    """The connections to one node, each free or with a call that has it."""

    def __init__(self, bounds: Bounds, breaker: Callable[[], Breaker]) -> None:
        super().__init__(bounds)
        self._breaker = breaker
        self.generation = 1
        # The idle connections with the last used last, and the commands in flight in the order of
        # sending.
        self.idle: list[L] = []
        self.in_flight: dict[L, None] = {}
        # Those of them that were sent after every command that has a reply.
        self._fresh: dict[L, None] = {}
        self.dials: set[Dialling] = set()
        # The number of calls that have a place, those with slots of their own apart.
        self._placed = 0
        # When the node was last heard.
        self._heard = 0.0
        # False until a dial of this generation has opened a connection.
        self._has_opened = False
        self._dial_at, self._refusal, self._stage = -NEVER, Exception(), ""
        self.is_closed = False

    # -- what a pool of connections does -------------------------------------------------------

    def _dial(self, dialling: Dialling, patience_s: float) -> bool:
        """Begins to open a connection. Returns False if that is not possible."""
        raise NotImplementedError

    def _is_usable(self, link: L) -> bool:
        """Returns False if an idle connection was closed by the other side."""
        raise NotImplementedError

    def _hang_up(self, link: L) -> None:
        """Closes a connection."""
        raise NotImplementedError

    def _interrupt(self, link: L) -> None:
        """Wakes the caller of a command in flight, which has an error now."""
        raise NotImplementedError

    def read_arrived(self) -> None:
        """Reads what has arrived for callers that have gone."""

    def _has_arrived(self, link: L) -> bool:
        """Returns True if a reply has arrived that its caller has not read yet."""
        return False

    # -- places --------------------------------------------------------------------------------

    @property
    def _has_place(self) -> bool:
        """True if a call may take a free connection, and overtakes no other."""
        return not self._line and self._placed < self._most

    def _may_dial(self, at: float) -> bool:
        return bool(self.dials) or at >= self._dial_at - SAME_S

    def _room(self, at: float) -> int:
        """Returns the number of calls that lack only a connection."""
        return self._most - len(self.links) if self._may_dial(at) else 0

    @property
    def _most(self) -> int:
        """The maximum number of connections, and of calls that have one, those for holds apart."""
        return min(self.bounds.max_in_flight, MOST_SOCKETS)

    def _assign(self, link: L, call: Call) -> L:
        link.holder = call
        self._placed += not call.is_kept
        return link

    def _release(self, link: L) -> None:
        if link.holder is not None:
            self._placed -= not link.holder.is_kept
            link.holder = None

    def repair(self, call: Call, error: Exception, at: float) -> None:
        """Counts the places again, and frees connections without a command in flight, after
        ``call`` was interrupted in a change of both.
        """
        for link in list(self.links):
            if link.call is not None and link not in self.in_flight:
                self.lose(link, error, at)
            elif link.call is None and (link.holder is call or _is_left(link.holder)):
                link.holder = None
        self._placed = sum(
            link.holder is not None and not link.holder.is_kept for link in self.links
        )
        for link in list(self.links):
            if link.holder is None and link.call is None and link not in self.idle:
                self.give(link, at)

    # -- connections ---------------------------------------------------------------------------

    def give(self, link: L, at: float) -> None:
        """Gives a free connection to the call that has waited longest, or stores it as idle.

        A call in line whose denial is known leaves it for that.
        """
        if link not in self.links:
            return
        self._release(link)
        while self._kept or (self._line and self._placed < self._most):
            waiter = (self._kept or self._line).popleft()
            if waiter.has_left:
                continue
            known = waiter.call.known if waiter.is_in_line else None
            denial = None if known is None else known()
            if denial is None:
                waiter.resolve(self._assign(link, waiter.call))
                return
            waiter.resolve(denial)
        if self.is_closed:
            self.drop(link, at)
        else:
            self.idle.append(link)

    def drop(self, link: L, at: float) -> None:
        """Closes a connection."""
        if link not in self.links:
            return
        self.links.discard(link)
        self._release(link)
        if link in self.idle:
            self.idle.remove(link)
        self._hang_up(link)
        if not self.links:
            self._lost = self.now(at)
            self._line_due = -NEVER
        elif self.idle and self._line:
            # The place may go to a call in line, which no dial helps if there are connections.
            self.give(self.idle.pop(), at)
        self._dial_more(at)

    def _forget(self, link: L) -> None:
        self.in_flight.pop(link, None)
        self._fresh.pop(link, None)

    def lose(self, link: L, error: Exception, at: float) -> None:
        """Notes that a connection was lost, and the command on it."""
        self._forget(link)
        call, link.call = link.call, None
        if link in self.links:
            if not link.has_replied:
                self._fail(at)
            self.drop(link, at)
        if call is not None and call.drains:
            self._report_late(call, lost(error))

    def _report_late(self, call: Call, result: Any) -> None:
        call.drains = False
        if call.late is not None:
            call.late(call, result)

    def retire(self, at: float, error: Exception | None = None) -> None:
        """Closes the connections of this generation, and ends their calls with an error."""
        self.generation += 1
        self._has_opened = False
        self._dial_at = -NEVER
        # What these open is too old.
        for dialling in self.dials:
            dialling.stop()
        self.dials.clear()
        links, self.links = self.links, set()
        self.idle.clear()
        for link in links:
            self._release(link)
            if link.call is None:
                self._hang_up(link)
                continue
            link.error = link.error or error or counted(
                "the connection was closed: it is too old", "connection", sent=True
            )  # fmt: skip
            self._hang_up(link)
            if link.drains:
                self.lose(link, link.error, at)
            else:
                self._forget(link)
                self._interrupt(link)
        self._lost = self.now(at)
        self._line_due = -NEVER
        self._dial_more(at)

    def retire_once(self, link: L, at: float) -> bool:
        """Retires the generation of a connection. Returns False if that has been done."""
        if link.generation != self.generation:
            return False
        self.retire(at)
        return True

    # -- dials ---------------------------------------------------------------------------------

    def _dial_more(self, at: float) -> None:
        """Opens connections for the calls in line.

        The first connection of a generation shows if the node replies, and all calls wait for it.
        """
        most = self._most + (RENEWAL_SLOTS + END_SLOTS if self._kept else 0)
        while (
            at >= self._dial_at - SAME_S
            and len(self.dials) < min(self.waiting, MOST_DIALS)
            and len(self.links) + len(self.dials) < most
            and (self._has_opened or not self.dials)
        ):
            call = (self._line or self._kept)[-1].call
            patience_s = max(self.bounds.dial_s, call.dial_s)
            dialling = Dialling(self.now(at) + patience_s)
            self.dials.add(dialling)
            if not self._dial(dialling, patience_s):
                self.dials.discard(dialling)
                return

    def dialled(self, dialling: Dialling, link: L, is_heard: bool, at: float) -> None:
        """Notes that a dial has ended with a connection. A late one serves the next caller."""
        if dialling not in self.dials:
            self._hang_up(link)
            return
        self.dials.discard(dialling)
        now = self.now(at)
        link.generation, link.heard = self.generation, now
        self.links.add(link)
        self._has_opened = True
        if is_heard:
            self._heard = now
        if not self._has_dialled:
            # Only now begins the time of the calls that have waited.
            for waiter in (*self._kept, *self._line):
                self._begin_wait(waiter, now, at)
            self._has_dialled = True
        self._line_due = -NEVER
        self.give(link, at)
        self._dial_more(at)

    def dial_failed(self, dialling: Dialling, error: Exception, at: float) -> None:
        """Notes that a dial has ended without a connection: one failure for all its callers."""
        if dialling not in self.dials:
            return
        self.dials.discard(dialling)
        self._has_dialled = True
        # Dials that end together are one failure.
        is_first = at >= self._dial_at
        pause_s = min(self.bounds.pause_s, _MOST_PAUSE_S) * random.uniform(0.8, 1)  # noqa: S311
        self._dial_at, self._refusal = at + pause_s, error
        self._stage = "not connected" if dialling.login is None else dialling.login.stage
        if is_rejection(error):
            self._breaker().succeeded()
        elif is_first:
            self._fail(at)
        # If connections are open, the calls in line use those.
        if not self.links and not self.dials:
            self.end_line(self._refused)
        self._dial_more(at)

    def _refused(self) -> Exception:
        """Returns the error of a call for which no connection can be opened yet.

        A rejection, for example of a password, is a final reply for all calls.
        """
        if is_rejection(self._refusal):
            return self._refusal.with_traceback(None)
        why = str(self._refusal) or type(self._refusal).__name__
        error = counted(why, "server" if is_temporary(self._refusal) else "connection")
        error.stage, error.__cause__ = self._stage, self._refusal
        return error

    def _fail(self, at: float) -> None:
        self._breaker().failed(max(0.0, self._dial_at - at))


def _is_left(call: Call | None) -> bool:
    return call is not None and call.was_left
