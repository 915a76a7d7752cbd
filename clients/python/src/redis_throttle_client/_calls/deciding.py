"""Decides a call by the reply of the server, by a known denial, or by ``on_error``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from .._net.breaker import Breakers
from .._net.fork import forgets
from .._net.node import Sender
from .._rules.decision import Decision
from .._rules.errors import InvalidArgument, LimiterClosed, Unavailable
from .._rules.keys import Keys
from .._rules.options import Options
from .._rules.rule import Item, Rule, checked_on_error
from .._wire import words
from .._wire.call import Call, Steps
from .._wire.words import Args, Keyed
from .denials import DenialCache, KnownDenials
from .events import Events
from .fallback import decide_without_server
from .local import Limits, LocalLimiter


class Deciding:
    """What decides the calls of a limiter: its keys, its caches of denials and its local limits."""

    def __init__(
        self, options: Options, breakers: Breakers, find_node: Callable[[str], Any], *,
        here: Callable[[], object], event: Callable[[], Any],
        is_up: Callable[[Any], bool] = lambda node: True,
        catch_up: Callable[[Any], None] = lambda node: None,
    ) -> None:  # fmt: skip
        """``here`` returns the running loop. ``event`` creates an event for that loop. ``is_up``
        returns True if a connection to a node is open. ``catch_up`` reads what has arrived from a
        node.
        """
        self.options, self._here, self._event = options, here, event
        self.keys = Keys(
            prefix=options.prefix, hash_tag=options.hash_tag, hmac_secret=options.hmac_secret
        )
        self.clock = options.clock
        self.timeout_s, self.tick_s = options.timeout_ms / 1000, options.silence_ms / 4000
        self.events = Events(options, self.keys.key_hash)
        self.sender = Sender(
            options, breakers, find_node, is_up, catch_up, lambda: self.events.count("rejected")
        )
        # True after the limiter was closed.
        self.is_closed = False
        forgets(self)

    def begin(self) -> None:
        """Resets the state of the limiter, at its creation and in the child of a fork.

        The parent's calls do not end in the child, and its permits must not be used twice.
        """
        self.sender.begin()
        self.events.begin()
        options = self.options
        self._denials = DenialCache(options.denial_cache, options.denial_cache_max_ms)
        # Guards what this process decides by itself.
        self._lock = lock = threading.Lock()
        self._known = KnownDenials(options.known_denials, options.denial_cache_max_ms, lock)
        self._local = LocalLimiter()

    def keep(
        self, args: Args, until: float, is_over: Callable[[], bool] | None = None
    ) -> Steps[Any]:
        """Sends a renewal or an end, which may wait until the instant ``until``."""
        return self.sender.keep(args, until, is_over)

    def send(self, args: Args, call: Call | None = None) -> Steps[Any]:
        """Sends a call once, if the circuit breaker of its node permits, and returns the reply."""
        if self.is_closed:
            raise LimiterClosed
        return self.sender.send(args, call or self.sender.call())

    def _is_known(self, items: Sequence[Keyed]) -> bool:
        """Returns True if known denials decide a call without the server."""
        return self._known.is_used and not _is_held(items)

    def key(self, rule: Rule, subject: str | int, tag: str | None) -> str:
        """Returns the key. Raises if the ``on_error`` of the rule cannot decide its calls, or if
        the limiter is closed.
        """
        if rule.on_error is None and self.options.on_error != "allow":
            checked_on_error(self.options.on_error, local=rule.keeps_locally)
        key = self.keys.key(rule.name, subject, tag)
        if self.is_closed:
            raise LimiterClosed
        return key

    def keyed(self, items: Sequence[Item], tag: str | None) -> list[Keyed]:
        """Returns the items with their keys."""
        if not all(isinstance(item, Item) for item in items):
            raise InvalidArgument("items: expected rule.of(subject) for each")
        return [Keyed(item, self.key(item.rule, item.subject, tag)) for item in items]

    def _decide(
        self, args: Args, items: Sequence[Keyed], read: Callable[[object], Decision], call: Call,
        *, partial: bool = False, caches: bool = True,
    ) -> Steps[Decision]:  # fmt: skip
        # A decision on a lease or a reservation belongs to its holder.
        caches = caches and not _is_held(items)
        is_cached, drops = caches and self._denials.is_used, 0
        began = self.clock()
        if is_cached:
            drops = self._denials.drops(args)
            cached = self._denials.get(args, began)
            if cached is not None:
                return cached
        if caches and self._known.is_used:
            known, seen = self._known, self._known.forgotten
            call.known = lambda: known.under_pressure(items, self.clock(), partial=partial)
            call.read = lambda reply: known.learn(
                items, read(reply), self.clock, seen, partial=partial
            )
        else:
            call.read = read
        try:
            decision: Decision = yield from self.sender.send(args, call)
        except Unavailable as error:
            call.may_have_run = error.may_have_run
            return self._fallback(items, error, partial=partial, knows=caches)
        if is_cached and decision.source == "server":
            self._denials.put(args, decision, began, drops)
        return decision

    def _peek(
        self, args: Args, items: Sequence[Keyed], read: Callable[[object], Decision]
    ) -> Steps[Decision]:  # fmt: skip
        call, known = self.sender.call(), self._known
        call.read = read
        if self._is_known(items):
            seen = known.forgotten
            call.known = lambda: known.under_pressure(items, self.clock())
            call.read = lambda reply: known.learn(items, read(reply), self.clock, seen)
        try:
            decision: Decision = yield from self.send(args, call)
        except Unavailable as error:
            return self._fallback(items, error, peek=True)
        return decision

    def _fallback(
        self, items: Sequence[Keyed], error: Unavailable, *, peek: bool = False,
        partial: bool = False, knows: bool = True,
    ) -> Decision:  # fmt: skip
        """Decides by a known denial or by ``on_error``, because the server did not decide."""
        now, locals_of = self.clock(), dict[int, tuple[LocalLimiter, float]]()
        on_errors = [item.rule.on_error or self.options.on_error for item, _ in items]
        with self._lock:
            knows = knows and not _is_held(items)
            if knows:
                denial = self._known.without_server(items, now, error.reason, partial=partial)
                if denial is not None:
                    return denial
            for at, keyed in enumerate(items):
                if on_errors[at] != "allow" or keyed.item.is_held:
                    continue
                if not knows and error.reason != "overloaded":
                    continue
                local = self._known.kept_locally(keyed, now, error.reason)
                if local is not None:
                    on_errors[at], locals_of[at] = "local", (local, 1.0)
            return decide_without_server(
                items, on_errors, error.reason, self.options.breaker_pause_ms,
                lambda at: locals_of.get(at) or (self._local, items[at].item.rule.local_share),
                int(now * 1_000_000), peek=peek, partial=partial,
            )  # fmt: skip

    def give_back_local(self, rule: Rule, key: str, units: int) -> None:
        """Gives back units that this process granted without the server."""
        now = self.clock()
        if (rule.on_error or self.options.on_error) == "allow":
            self._known.give_back(rule, key, units, now)
            return
        with self._lock:
            limits = Limits.of(rule, rule.local_share)
            self._local.settle(limits, key, -units, int(now * 1_000_000))

    def _drop(self, key: str, kind: words.Settling = "refund") -> None:
        """Drops the denials of a key that a call changes."""
        self._denials.drop(key)
        if kind == "refund":
            self._known.forget(key)


def _is_held(items: Sequence[Keyed]) -> bool:
    """Returns True if a lease or a reservation is among the items."""
    for item, _ in items:  # noqa: SIM110
        # A generator takes several times as long.
        if item.is_held:
            return True
    return False
