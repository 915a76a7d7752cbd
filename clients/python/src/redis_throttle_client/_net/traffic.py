"""The traffic to one node: commands in flight, calls in line, connections and dials.

:class:`Traffic` decides when calls end, without any waiting: the same for threads and for asyncio.
Instants are named as in :mod:`.line`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._rules.errors import Unavailable, counted, is_reply, lost, repeated, retires
from .._rules.options import Bounds
from .._wire.call import Call
from .breaker import Breaker
from .connection import NEVER, SAME_S, L, Link
from .line import LATE_S, W
from .pool import Connections


class Traffic(Connections[L, W]):
    """The traffic to one node."""

    def __init__(self, bounds: Bounds, breaker: Callable[[], Breaker]) -> None:
        super().__init__(bounds, breaker)
        # Until this instant calls have little patience for their replies.
        self._short_reply_at = -NEVER

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

    def join(self, waiter: W, at: float) -> None:
        """Adds a call to the line, and opens connections for it."""
        call, in_line = waiter.call, len(self._line) - self._room(at)
        waiter.is_in_line = in_line >= 0
        if in_line >= self.bounds.max_waiting and not call.is_kept and waiter.is_in_line:
            raise counted(f"{self.bounds.max_waiting} calls wait in line already", "overloaded")
        (self._kept if call.is_kept else self._line).append(waiter)
        self._begin_wait(waiter, self.now(at), at)
        self._dial_more(at)

    def send(self, link: L, call: Call, at: float) -> None:
        """Notes a command that is about to be sent."""
        call.may_have_run, now = True, self.now(at)
        link.call, link.error, link.sent, link.overtaken = call, None, now, NEVER
        call.ends_at = call.ends_at or at + 3 * call.left_s
        link.ends, link.ends_at = now + call.left_s, call.ends_at
        if not call.is_kept and (call.is_probe or at < self._short_reply_at):
            link.ends = min(link.ends, now + self.bounds.silence_s)
        self.in_flight[link] = self._fresh[link] = None

    def send_again(self, link: L, at: float) -> None:
        """Notes that a command was sent only now, and not before those that have replies."""
        link.sent, link.overtaken = self.now(at), NEVER
        self._fresh.pop(link, None)
        self._fresh[link] = None

    def replied(self, link: L, reply: Any, at: float) -> None:
        """Notes the reply to a command, or an error reply. Its connection is free afterwards."""
        self._forget(link)
        call, link.call = link.call, None
        self._heard = link.heard = now = self.now(at)
        link.has_replied = True
        while self._fresh:
            first = next(iter(self._fresh))
            if first.sent >= link.sent:
                break
            first.overtaken = now
            del self._fresh[first]
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
            self._report_late(call, result)

    def failed(self, link: L, error: Exception, at: float) -> Exception:
        """Ends a command with an error reply, or that of a lost connection. Returns the error."""
        if not is_reply(error):
            self.lose(link, error, at)
            return link.error or lost(error)
        self.replied(link, error, at)
        if retires(error) and not self.retire_once(link, at):
            error = repeated(error)
        self.give(link, at)
        return link.error or error

    def abandon(self, link: L) -> None:
        """Notes that the caller of a command in flight has gone, which drains now."""
        if link.call is not None:
            link.call.drains = link.call.was_left = True
            # A probe that was cancelled is a command as any other.
            link.call.is_probe = link.call.is_probe and link.error is not None

    # -- the end of calls ----------------------------------------------------------------------

    def is_due(self, at: float) -> bool:
        """Returns True if a look would end something."""
        return self._next(self.now(at), at) <= SAME_S

    def look(self, at: float) -> float:
        """Ends what is due. Returns the time until the next look, at most that of a tick."""
        now = self._advance(at)
        if self._next(now, at) <= SAME_S:
            self.read_arrived()
            for dialling in [one for one in self.dials if now >= one.ends - SAME_S]:
                dialling.stop()
                self.dial_failed(dialling, TimeoutError("the dial took too long"), at)
            self._look_at_replies(now, at)
            self._look_at_line(now, at)
        return max(0.0, min(self.bounds.tick_s, self._next(self.now(at), at)))

    def _next(self, now: float, at: float) -> float:
        """Returns the time until something is due; 0 or less if it is."""
        due = self._line_due if self._line or self._kept else NEVER
        due = min(due, self._silent_at())
        silence_s, wall = self.bounds.silence_s, NEVER
        for link in self.in_flight:
            if link.is_sent:
                due = min(due, link.overtaken + silence_s)
            if link.call is not None and not link.call.drains:
                due, wall = min(due, link.ends), min(wall, link.ends_at)
        for line in (self._line, self._kept):
            if line:
                wall = min(wall, line[0].call.ends_at if self._has_dialled else NEVER)
        for dialling in self.dials:
            due = min(due, dialling.ends)
        return min(due - now, wall - at)

    def _silent_at(self) -> float:
        """Returns the instant at which the node is silent."""
        sent = NEVER
        # A command that was overtaken is closed alone.
        for link in self._fresh:
            call = link.call
            # A probe has its own end, and its command waits for the next one.
            if call is not None and link.is_sent and not (call.is_probe or call.is_patient):
                sent = min(sent, link.sent)
        return max(self._heard, sent) + self.bounds.silence_s

    def _look_at_replies(self, now: float, at: float) -> None:
        # A call whose time is over as well may have been sent a moment after it began.
        is_over = any(now >= link.ends - SAME_S for link in self.in_flight if not link.drains)
        if now >= self._silent_at() - (LATE_S if is_over else SAME_S):
            if any(map(self._has_arrived, self.in_flight)):
                self._heard = now
                return
            self._fall_silent(now, at)
            return
        for link in list(self.in_flight):
            call = link.call
            if call is None or self._has_arrived(link):
                continue
            if link.is_sent and now >= link.overtaken + self.bounds.silence_s - SAME_S:
                self._close_alone(link, at)
            elif not call.drains and (now >= link.ends - SAME_S or at >= link.ends_at):
                self._end_late(link, call, now, at)

    def _fall_silent(self, now: float, at: float) -> None:
        """Ends the calls in flight and the generation. One failure, also if no caller is left."""
        for waiter in [*self._kept, *self._line]:
            if now >= waiter.joined + self.bounds.silence_s - SAME_S:
                self.leave(waiter)
                waiter.resolve(counted("the node is silent", "timeout"))
        self._fail(at)
        self.retire(at, _silent())

    def _close_alone(self, link: L, at: float) -> None:
        """Closes a silent connection of a node that replies to others, and those silent as long."""
        for other in [one for one in self.idle if one.heard < link.sent]:
            self.drop(other, at)
        link.error = link.error or _silent()
        self.drop(link, at)
        if link.drains:
            self.lose(link, link.error, at)
        else:
            self._forget(link)
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
        call.drains = call.was_left = True
        self._interrupt(link)


def _silent() -> Unavailable:
    return counted("the node is silent", "timeout", sent=True)


def _gives_back(link: Link) -> bool:
    return link.call is not None and link.call.gives_back


def _is_silent_probe(link: Link) -> bool:
    """Returns True for a probe whose caller has ended without a reply."""
    return link.drains and link.call is not None and link.call.is_probe
