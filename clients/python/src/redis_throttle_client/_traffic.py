"""The traffic to one node: commands in flight, calls in line, connections and dials.

:class:`Traffic` decides when calls end, without any waiting: the same for threads and for asyncio.
Instants named ``now`` are in run time, which counts the time in which the process runs; instants
named ``at`` are those of the clock.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ._breaker import Breaker
from ._dial import LEASE_SLOTS, MOST_DIAL_S, MOST_DIALS, MOST_SOCKETS, Login
from ._errors import Unavailable, counted, is_rejection, is_temporary, lost
from ._options import Options
from ._steps import Call

L = TypeVar("L", bound="Link")
W = TypeVar("W", bound="Waiter")
# A tick lasts at most so much longer than planned. The rest is time in which the process did not
# run.
_LATE_S = 0.01
# Instants within this time are the same.
_SAME_S = 0.0005
_NEVER = float("inf")
# The longest pause between dials.
_MOST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The times and numbers that the options of a limiter set for each node."""

    timeout_s: float
    silence_s: float
    pause_s: float
    max_in_flight: int
    max_waiting: int

    @classmethod
    def of(cls, options: Options) -> Bounds:
        """Returns those of the options."""
        return cls(
            options.timeout_ms / 1000, options.silence_ms / 1000, options.breaker_pause_ms / 1000,
            options.max_in_flight, options.max_waiting,
        )  # fmt: skip

    @property
    def tick_s(self) -> float:
        """The longest time between two looks at the calls that wait."""
        return self.silence_s / 4

    @property
    def dial_s(self) -> float:
        """The time of a dial."""
        return max(MOST_DIAL_S, self.timeout_s)


class Link:
    """A connection, and the command that it carries: one at a time."""

    def __init__(self) -> None:
        self.generation = 0
        self.heard = -_NEVER
        self.has_answered = False
        # The call that has the connection, before and after it has sent a command.
        self.holder: Call | None = None
        # The call whose command is not answered, and when that was sent.
        self.call: Call | None = None
        self.sent = self.ends = self.ends_at = 0.0
        # When the node first answered, on another connection, a command that was sent later.
        self.overtaken = _NEVER
        # The error with which the call ended before its reply.
        self.error: Exception | None = None

    @property
    def drains(self) -> bool:
        """True if the caller has gone."""
        return self.call is not None and self.call.drains


class Waiter:
    """A call in line."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.joined = self.ends = self.gives_up = self.ends_at = 0.0
        self.joined_at = 0.0
        # False for a call that lacks only a connection, and waits for a dial.
        self.is_in_line = True

    @property
    def has_left(self) -> bool:
        """True if the call was cancelled."""
        raise NotImplementedError

    def resolve(self, result: Any) -> None:
        """Ends the wait with a connection, a known denial or an error."""
        raise NotImplementedError


class Dialling:
    """An attempt to open a connection, which must end by the instant ``ends``."""

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.login: Login | None = None
        # Ends the attempt.
        self.stop: Callable[[], Any] = lambda: None


class Traffic(Generic[L, W]):
    """The traffic to one node."""

    def __init__(self, bounds: Bounds, breaker: Callable[[], Breaker]) -> None:
        self.bounds, self._breaker = bounds, breaker
        self._run = self._looked_at = 0.0
        # The most run time between two looks.
        self._most_s = bounds.tick_s + _LATE_S
        self.generation = 1
        # The open connections, the idle ones with the last used last, and the commands in flight
        # in the order of sending.
        self.links: set[L] = set()
        self.idle: list[L] = []
        self.in_flight: dict[L, None] = {}
        self.dials: set[Dialling] = set()
        # The number of calls that have a place, those with slots of their own apart.
        self._placed = 0
        self._kept: deque[W] = deque()
        self._line: deque[W] = deque()
        self._heard = self._lost = 0.0
        # The earliest instant at which a call in line may end.
        self._line_due = _NEVER
        # Until these instants calls have little patience, in line and for their replies.
        self._short_line_at = self._short_reply_at = -_NEVER
        # False until a dial has ended, and until one of this generation has opened a connection.
        self._has_dialled = self._has_opened = False
        self._dial_at, self._refusal, self._stage = -_NEVER, Exception(), ""
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

    # -- time ----------------------------------------------------------------------------------

    def now(self, at: float) -> float:
        """Returns the run time at an instant. It stands still soon after a look that is due."""
        passed = at - self._looked_at
        return self._run + (passed if passed < self._most_s else self._most_s)

    def _advance(self, at: float) -> float:
        """Begins the time until the next look, and returns the run time."""
        self._run, self._looked_at = self.now(at), at
        return self._run

    @property
    def is_busy(self) -> bool:
        """True if a call, a command or a dial needs another look at the time."""
        return bool(self.in_flight or self._line or self._kept or self.dials)

    @property
    def is_quiet(self) -> bool:
        """True if no call or end is in flight, and no command that will be given back."""
        return not self._kept and all(
            link.drains and not _gives_back(link) for link in self.in_flight
        )

    @property
    def waiting(self) -> int:
        """The number of calls in line."""
        return len(self._line) + len(self._kept)

    # -- calls ---------------------------------------------------------------------------------

    def find(self, call: Call, at: float) -> Any:
        """Returns a free connection or the known denial of a call; None if it must join the line.

        Raises an error if no connection can be opened at the moment.
        """
        if not self.is_busy:
            self._advance(at)
        call.may_have_run = False
        if call.is_probe and any(_is_silent_probe(link) for link in self.in_flight):
            self.retire(at)
        while self.idle and (self._has_place or call.is_kept):
            link = self.idle.pop()
            if self._is_usable(link):
                return self._assign(link, call)
            self.drop(link, at)
        self.read_arrived()
        if self.idle and (self._has_place or call.is_kept):
            return self._assign(self.idle.pop(), call)
        if not self.links and not self._may_dial(at):
            raise self._refused()
        if call.known is not None and len(self._line) >= self._room(at):
            return call.known()
        return None

    @property
    def _has_place(self) -> bool:
        """True if a call may take a free connection, and overtakes no other."""
        return not self._line and self._placed < self.bounds.max_in_flight

    def _may_dial(self, at: float) -> bool:
        return bool(self.dials) or at >= self._dial_at - _SAME_S

    def _room(self, at: float) -> int:
        """Returns the number of calls that lack only a connection."""
        return self._most - len(self.links) if self._may_dial(at) else 0

    @property
    def _most(self) -> int:
        """The maximum number of connections, those for leases apart."""
        return min(self.bounds.max_in_flight, MOST_SOCKETS)

    def _assign(self, link: L, call: Call) -> L:
        link.holder = call
        self._placed += not call.is_kept
        return link

    def _release(self, link: L) -> None:
        if link.holder is not None:
            self._placed -= not link.holder.is_kept
            link.holder = None

    def join(self, waiter: W, at: float) -> None:
        """Adds a call to the line, and opens connections for it."""
        call, in_line = waiter.call, len(self._line) - self._room(at)
        waiter.is_in_line = in_line >= 0
        if in_line >= self.bounds.max_waiting and not call.is_kept and waiter.is_in_line:
            raise counted(f"{self.bounds.max_waiting} calls wait in line already", "overloaded")
        (self._kept if call.is_kept else self._line).append(waiter)
        waiter.joined_at = at
        self._begin_wait(waiter, self.now(at), at)
        self._dial_more(at)

    def _begin_wait(self, waiter: W, now: float, at: float) -> None:
        call, patience_s = waiter.call, waiter.call.left_s
        if not (call.is_kept or call.is_patient):
            patience_s /= 2
            if at < self._short_line_at:
                patience_s = min(patience_s, self.bounds.silence_s)
        waiter.joined, waiter.ends = now, now + call.left_s
        waiter.gives_up, waiter.ends_at = now + patience_s, at + 3 * call.left_s
        self._line_due = min(self._line_due, self._ends_of(waiter))

    def end_wait(self, waiter: W, at: float) -> None:
        """Takes the time that a call has waited in line from that which it has left."""
        waiter.call.left_s = waiter.ends - self.now(at)
        waiter.call.waited_s += at - waiter.joined_at

    def leave(self, waiter: W) -> None:
        """Removes a cancelled call from the line."""
        with contextlib.suppress(ValueError):
            (self._kept if waiter.call.is_kept else self._line).remove(waiter)

    def send(self, link: L, call: Call, at: float) -> None:
        """Notes a command that is about to be sent."""
        call.may_have_run, now = True, self.now(at)
        link.call, link.error, link.sent, link.overtaken = call, None, now, _NEVER
        link.ends, link.ends_at = now + call.left_s, at + 3 * call.left_s
        if not call.is_kept and (call.is_probe or at < self._short_reply_at):
            link.ends = min(link.ends, now + self.bounds.silence_s)
        self.in_flight[link] = None

    def answer(self, link: L, reply: Any, at: float) -> None:
        """Notes the reply to a command, or an error reply. Its connection is free afterwards."""
        self.in_flight.pop(link, None)
        call, link.call = link.call, None
        self._heard = link.heard = now = self.now(at)
        link.has_answered = True
        if self.in_flight:
            self._overtake(link.sent, now)
        if call is None:
            return
        call.left_s -= now - link.sent
        result = reply
        if not isinstance(reply, Exception):
            try:
                result = reply if call.read is None else call.read(reply)
            except Exception as error:
                result = error
            else:
                call.result = result
        if call.drains:
            self._tell_late(call, result)

    def _overtake(self, sent: float, now: float) -> None:
        """Notes that a command was answered before those that were sent earlier."""
        for other in self.in_flight:
            if other.sent >= sent:
                break
            other.overtaken = min(other.overtaken, now)

    def lose(self, link: L, error: Exception, at: float) -> None:
        """Notes that a connection was lost, and the command on it."""
        self.in_flight.pop(link, None)
        call, link.call = link.call, None
        if link in self.links:
            if not link.has_answered:
                self._fail(at)
            self.drop(link, at)
        if call is not None and call.drains:
            self._tell_late(call, lost(error))

    def _tell_late(self, call: Call, result: Any) -> None:
        call.drains = False
        if call.late is not None:
            call.late(call, result)

    def abandon(self, link: L) -> None:
        """Notes that the caller of a command in flight has gone, which drains now."""
        if link.call is not None:
            link.call.drains = True
            # A probe that was cancelled is a command as any other.
            link.call.is_probe = link.call.is_probe and link.error is not None

    # -- connections ---------------------------------------------------------------------------

    def give(self, link: L, at: float) -> None:
        """Gives a free connection to the call that has waited longest, or stores it as idle.

        A call in line whose denial is known leaves it for that.
        """
        if link not in self.links:
            return
        self._release(link)
        while self._kept or (self._line and self._placed < self.bounds.max_in_flight):
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
            self._line_due = -_NEVER
        self._dial_more(at)

    def retire(self, at: float, error: Exception | None = None) -> None:
        """Closes the connections of this generation, and ends their calls with an error."""
        self.generation += 1
        self._has_opened = False
        self._dial_at = -_NEVER
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
                self.in_flight.pop(link, None)
                self._interrupt(link)
        self._lost = self.now(at)
        self._line_due = -_NEVER
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

        The first connection of a generation shows if the node answers, and all calls wait for it.
        """
        most = self._most + (LEASE_SLOTS if self._kept else 0)
        while (
            at >= self._dial_at - _SAME_S
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
            self._has_dialled = True
            # Only now begins the time of the calls that have waited.
            for waiter in (*self._kept, *self._line):
                self._begin_wait(waiter, now, at)
        self._line_due = -_NEVER
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
        pause_s = min(self.bounds.pause_s, _MOST_PAUSE_S) * random.uniform(0.8, 1.2)  # noqa: S311
        self._dial_at, self._refusal = at + pause_s, error
        self._stage = "not connected" if dialling.login is None else dialling.login.stage
        if is_rejection(error):
            self._breaker().answered()
        elif is_first:
            self._fail(at)
        # If connections are open, the calls in line use those.
        if not self.links and not self.dials:
            self.end_line(self._refused)
        self._dial_more(at)

    def end_line(self, error: Callable[[], Exception], *, kept: bool = True) -> None:
        """Ends all calls in line, and if ``kept`` those with slots of their own."""
        while (kept and self._kept) or self._line:
            waiter = (self._line or self._kept).popleft()
            if not waiter.has_left:
                waiter.resolve(error())

    def _refused(self) -> Exception:
        """Returns the error of a call for which no connection can be opened yet.

        A rejection, for example of a password, is an answer for all calls.
        """
        if is_rejection(self._refusal):
            return self._refusal.with_traceback(None)
        why = str(self._refusal) or type(self._refusal).__name__
        error = counted(why, "server" if is_temporary(self._refusal) else "connection")
        error.stage, error.__cause__ = self._stage, self._refusal
        return error

    def _fail(self, at: float) -> None:
        self._breaker().failed(max(0.0, self._dial_at - at))

    # -- the end of calls ----------------------------------------------------------------------

    def is_due(self, at: float) -> bool:
        """Returns True if a look would end something."""
        return self._next(self.now(at), at) <= _SAME_S

    def look(self, at: float) -> float:
        """Ends what is due. Returns the time until the next look, at most that of a tick."""
        now = self._advance(at)
        if self._next(now, at) <= _SAME_S:
            self.read_arrived()
            for dialling in [one for one in self.dials if now >= one.ends - _SAME_S]:
                dialling.stop()
                self.dial_failed(dialling, TimeoutError("the dial took too long"), at)
            self._look_at_replies(now, at)
            self._look_at_line(now, at)
        return max(0.0, min(self.bounds.tick_s, self._next(self.now(at), at)))

    def _next(self, now: float, at: float) -> float:
        """Returns the time until something is due; 0 or less if it is."""
        due = self._line_due if self._line or self._kept else _NEVER
        due = min(due, self._silent_at())
        silence_s, wall = self.bounds.silence_s, _NEVER
        for link in self.in_flight:
            due = min(due, link.overtaken + silence_s)
            if link.call is not None and not link.call.drains:
                due, wall = min(due, link.ends), min(wall, link.ends_at)
        for line in (self._line, self._kept):
            if line:
                wall = min(wall, line[0].ends_at if self._has_dialled else _NEVER)
        for dialling in self.dials:
            due = min(due, dialling.ends)
        return min(due - now, wall - at)

    def _silent_at(self) -> float:
        """Returns the instant at which the node is silent."""
        sent = _NEVER
        for link in self.in_flight:
            call = link.call
            # A probe has its own end, and its command waits for the next one.
            is_exempt = call is None or call.is_probe or call.is_patient
            # One that was overtaken is closed alone.
            if not is_exempt and link.overtaken == _NEVER:
                sent = min(sent, link.sent)
        return max(self._heard, sent) + self.bounds.silence_s

    def _look_at_replies(self, now: float, at: float) -> None:
        # A call whose time is over as well may have been sent a moment after it began.
        is_over = any(now >= link.ends - _SAME_S for link in self.in_flight if not link.drains)
        if now >= self._silent_at() - (_LATE_S if is_over else _SAME_S):
            if any(map(self._has_arrived, self.in_flight)):
                self._heard = now
                return
            self._fall_silent(now, at)
            return
        for link in list(self.in_flight):
            call = link.call
            if call is None or self._has_arrived(link):
                continue
            if now >= link.overtaken + self.bounds.silence_s - _SAME_S:
                self._close_alone(link, at)
            elif not call.drains and (now >= link.ends - _SAME_S or at >= link.ends_at):
                self._end_late(link, call, now, at)

    def _fall_silent(self, now: float, at: float) -> None:
        """Ends the calls in flight and the generation. One failure, also if no caller is left."""
        for waiter in [*self._kept, *self._line]:
            if now >= waiter.joined + self.bounds.silence_s - _SAME_S:
                self.leave(waiter)
                waiter.resolve(counted("the node is silent", "timeout"))
        self._fail(at)
        self.retire(at, _silent())

    def _close_alone(self, link: L, at: float) -> None:
        """Closes a silent connection of a node that answers others, and those silent as long."""
        for other in [one for one in self.idle if one.heard < link.sent]:
            self.drop(other, at)
        link.error = link.error or _silent()
        self.drop(link, at)
        if link.drains:
            self.lose(link, link.error, at)
        else:
            self.in_flight.pop(link, None)
            self._interrupt(link)

    def _end_late(self, link: L, call: Call, now: float, at: float) -> None:
        """Ends a call alone. Its command drains."""
        if call.is_patient and now >= max(self._heard, link.sent) + self.bounds.silence_s:
            self._fall_silent(now, at)
            return
        if call.is_probe:
            link.error = counted("the node is silent", "timeout", sent=True)
            self._fail(at)
        else:
            link.error = counted("no reply in time", "overloaded", sent=True)
            self._short_reply_at = at + self.bounds.pause_s
        call.drains = True
        self._interrupt(link)

    def _ends_of(self, waiter: W) -> float:
        """Returns the instant at which a call in line ends."""
        if not self._has_dialled:
            return _NEVER
        if self.links:
            return waiter.gives_up
        call = waiter.call
        if call.is_kept or call.is_patient:
            return waiter.ends
        return min(waiter.ends, max(waiter.joined, self._lost) + self.bounds.silence_s)

    def _look_at_line(self, now: float, at: float) -> None:
        self._line_due = _NEVER
        for line in (self._kept, self._line):
            for waiter in list(line) if self._has_dialled else ():
                due = self._ends_of(waiter)
                if now < due - _SAME_S and at < waiter.ends_at:
                    self._line_due = min(self._line_due, due)
                    continue
                line.remove(waiter)
                if not self.links:
                    waiter.resolve(counted("no connection in time", "connection"))
                    continue
                if not waiter.call.is_kept:
                    self._short_line_at = at + self.bounds.pause_s
                waiter.resolve(counted("no place in time", "overloaded"))


def _silent() -> Unavailable:
    return counted("the node is silent", "timeout", sent=True)


def _gives_back(link: Link) -> bool:
    return link.call is not None and link.call.gives_back


def _is_silent_probe(link: Link) -> bool:
    """Returns True for a probe whose caller has ended without a reply."""
    return link.drains and link.call is not None and link.call.is_probe
