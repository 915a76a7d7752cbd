"""The limiter for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, Unpack

from ._calls.prefetch import Turnstile
from ._calls.running import Running
from ._calls.steps import Calls, item_of
from ._holds.admission import Admission, allowed, check_admission, lease_item, new_id, take
from ._holds.ending import Renewer
from ._holds.hold import Entry, Hold, holds_of
from ._holds.lease import Lease, LeaseContext
from ._holds.reservation import Reservation
from ._net.breaker import Breakers
from ._net.fork import forgets
from ._net.transport import is_up_of, transport
from ._net.url import client_of
from ._rules.decision import Decision
from ._rules.durations import Duration
from ._rules.errors import Unavailable
from ._rules.event import Counters, OnDecision
from ._rules.options import Backend, Bounds, LimiterOptions, Options, checked_function
from ._rules.rule import Item, Rule
from ._wire.call import Steps


class _Use:
    """The threads that use a limiter. A forked child does not have those of its parent."""

    def __init__(self) -> None:
        forgets(self)

    def begin(self) -> None:
        """Resets to no threads, also in the child of a fork."""
        # The number of threads that take leases and reservations.
        self.taking, self.took = 0, threading.Condition()
        self.closing = threading.Lock()


class Limiter:
    """A limiter with its own connections, opened with the settings of ``client``.

    ``client`` is a ``Redis``, also one from Sentinel, or a ``RedisCluster``, of redis-py or
    valkey-py. Each call is sent once and ends within ``timeout_ms``. Thread-safe.

    >>> with Limiter(client, timeout_ms=50) as limiter:
    ...     limiter.check(gcra("api", burst=10, rate="10/minute"), "42").remaining
    9
    """

    def __init__(
        self, client: Any, *, sleep: Callable[[float], None] = time.sleep,
        **options: Unpack[LimiterOptions],
    ) -> None:  # fmt: skip
        checked = Options.of(**options)
        checked_function(sleep, "sleep")
        self._breakers = breakers = Breakers(checked)
        self._transport = transport(client, Bounds.of(checked), breakers)
        self._calls = Calls(
            checked, breakers, self._transport.node, here=lambda: None, event=Turnstile,
            is_up=is_up_of(self._transport),
            catch_up=getattr(self._transport, "catch_up", lambda node: None),
        )  # fmt: skip
        self._run = Running(self._transport, self._calls.sender, sleep).run
        self._renewer = Renewer(self._run, checked.clock)
        self._use = _Use()

    @classmethod
    def from_url(
        cls, url: str, *, cluster: bool = False, sleep: Callable[[float], None] = time.sleep,
        **options: Unpack[LimiterOptions],
    ) -> Self:  # fmt: skip
        """Creates a limiter for ``redis://[user:password@]host[:port][/db]``.

        ``rediss://`` connects with TLS, and ``unix:///path`` to a socket. With ``cluster``, the URL
        is that of one node of a cluster. Its query may have settings of the driver, such as
        ``?ssl_ca_certs=/path``. Needs redis-py or valkey-py. :meth:`close` closes all connections.
        Raises :class:`Unavailable` for a cluster that does not reply.

        >>> with Limiter.from_url("redis://127.0.0.1:1") as limiter:  # where no server runs
        ...     decision = limiter.check(gcra("api", burst=10, rate="10/minute"), "42")
        >>> decision.allowed, decision.source
        (True, 'error')
        """
        dial_s = Bounds.of(Options.of(**options)).dial_s
        client = client_of(url, cluster=cluster, is_async=False, dial_s=dial_s)
        return cls(client, sleep=sleep, **options)

    def check(
        self, rule: Rule, subject: str | int, cost: int = 1, *, leave: int | str | None = None,
        partial: bool = False, tag: str | None = None,
    ) -> Decision:  # fmt: skip
        """Decides a call, and takes ``cost`` if the call is allowed.

        With ``leave``, a number of units or a share of the limit such as ``"20%"``, the call is
        allowed only if these remain. With ``partial``, the call takes as many units as are left, at
        most ``cost`` and at least 1; ``granted`` of the decision is their number.

        >>> api = gcra("api", burst=3, rate="10/minute")
        >>> [limiter.check(api, "42").allowed for _ in range(4)]
        [True, True, True, False]
        >>> limiter.check(api, "42").retry_after_ms
        6000
        """
        if cost == 1 and type(cost) is int and leave is None and not partial:
            spent = self._calls.spend(rule, subject, tag)
            if spent is not None:
                return spent
        item = item_of(rule, subject, cost, leave)
        return self._run(self._calls.check(item, tag, partial=partial))

    def peek(
        self, rule: Rule, subject: str | int, cost: int = 1, *, leave: int | str | None = None,
        tag: str | None = None,
    ) -> Decision:  # fmt: skip
        """Returns what :meth:`check` would decide. Takes nothing. Cost 0 reads the status.

        >>> limiter.peek(gcra("api", burst=10, rate="10/minute"), "42", cost=0).remaining
        10
        """
        return self._run(self._calls.peek(item_of(rule, subject, cost, leave), tag))

    def refund(
        self, rule: Rule, subject: str | int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Gives units back, up to the full allowance. Do not repeat: each call gives units back.

        >>> api = gcra("api", burst=10, rate="10/minute")
        >>> limiter.check(api, "42", cost=5).remaining
        5
        >>> limiter.refund(api, "42", cost=3).remaining
        8
        """
        return self._run(self._calls.settle("refund", rule, subject, cost, tag))

    def charge(
        self, rule: Rule, subject: str | int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Takes units even if that many are not left, for work that cost more than estimated."""
        return self._run(self._calls.settle("charge", rule, subject, cost, tag))

    def forget(self, rule: Rule, subject: str | int, *, tag: str | None = None) -> None:
        """Resets the subject's allowance under this rule."""
        self._run(self._calls.forget(rule, subject, tag))

    def block(
        self, rule: Rule, subject: str | int, duration: Duration, *, tag: str | None = None
    ) -> None:  # fmt: skip
        """Denies every call of the subject under this rule for ``duration``, 1 ms to 366 days.

        The ban forgets what the subject has used, its leases and its reservations. A new ban
        replaces it, and :meth:`forget` lifts it.
        """
        self._run(self._calls.block(rule, subject, duration, tag))

    def check_all(
        self, *items: Item, tag: str | None = None, id: str | None = None
    ) -> Decision:  # fmt: skip
        """Checks several rules at once: ``rule.of(subject)`` for each. Takes from all or from none.

        ``rows`` of the decision has the decision of each item. In a cluster all keys need one hash
        tag: ``tag``. Leases and reservations need an ``id``, and the caller must end them:
        :meth:`admit` does so by itself.
        """
        return self._run(self._calls.check_all(items, tag, id))

    def peek_all(
        self, *items: Item, tag: str | None = None, id: str | None = None
    ) -> Decision:  # fmt: skip
        """Returns what :meth:`check_all` would decide. Takes nothing."""
        return self._run(self._calls.peek_all(items, tag, id))

    def check_each(self, *items: Item) -> Decision:
        """Checks one rule after the other, for keys in different slots.

        If a later rule denies, its call fails, or the caller is cancelled, the earlier costs are
        refunded. If all allow, the rule with the fewest calls left decides. Leases, reservations
        and backoffs are an :class:`InvalidArgument`. Until a refund, other callers cannot use its
        units. If it gets no reply, its cost stays taken, which only makes the limit stricter.
        """
        return self._run(self._calls.check_each(items))

    def wait(
        self, rule: Rule, subject: str | int, max_wait_ms: int, cost: int = 1, *,
        tag: str | None = None,
    ) -> Decision:  # fmt: skip
        """Sleeps until the call may act. Denies it if that takes longer than ``max_wait_ms``."""
        return self._run(self._calls.wait(rule, subject, max_wait_ms, cost, tag))

    def lease(
        self, rule: Rule, subject: str | int, id: str | None = None, *, tag: str | None = None
    ) -> LeaseContext:
        """Takes a permit for a ``with`` block, renews it, and releases it at the end.

        >>> with limiter.lease(lease("jobs", 4, ttl="30s"), "42") as held:
        ...     held.held
        True
        >>> held.released
        True
        """
        name = new_id(id)
        item = lease_item(self._calls, rule, subject, name, tag)
        return LeaseContext(lambda: self._admit([item], tag, name))

    def admit(self, *items: Item, tag: str | None = None, id: str | None = None) -> Admission:
        """Takes from several rules at once, or raises :class:`Denied` and takes from none.

        Use the result in a ``with`` block, or call its ``finish()`` at the end of the work. Leases
        and reservations are renewed until then. ``settle`` notes the units that the work took:
        a reservation is then committed, otherwise cancelled; of other items the difference to their
        cost is charged or refunded. ``id``, 1 to 64 bytes without spaces and by default random, is
        the holder of all leases and reservations.

        >>> calls, tokens = gcra("calls", 10, "10/minute"), gcra("tokens", 9000, "9000/minute")
        >>> with limiter.admit(calls.of("42"), tokens.of("42").cost(500)) as admitted:
        ...     admitted.settle(tokens, 420)
        >>> limiter.peek(tokens, "42", cost=0).remaining
        8580
        """
        return Admission(*self._admitted(items, tag, id), self._renewer)

    def reserve(
        self, rule: Rule, subject: str | int, cost: int, ttl: Duration = 30, *,
        tag: str | None = None, id: str | None = None,
    ) -> Reservation:  # fmt: skip
        """Reserves ``cost`` under a fixed window, a quota or a policy. Raises :class:`Denied`.

        It is the admission of one reservation, which expires after ``ttl`` unless it is renewed.

        >>> with limiter.reserve(quota("tokens", 100_000, "month"), "42", 500) as reserved:
        ...     reserved.decision.remaining
        99500
        """
        taken = self._admitted([item_of(rule, subject, 1).reserve(cost, ttl)], tag, id)
        return Reservation(*taken, self._renewer)

    @property
    def counters(self) -> Counters:
        """The counts of the decisions since the limiter was created."""
        return self._calls.events.counters()

    @property
    def open_breakers(self) -> int:
        """The number of nodes whose circuit breaker is open: calls to them end at once."""
        return self._breakers.count_open()

    def on_decision(self, hook: OnDecision) -> None:
        """Adds a hook to that of the options. It gets the same events, after the earlier ones."""
        self._calls.events.add(hook)

    def ready(self) -> Backend:
        """Returns the back end in use: ``module``, ``functions`` or ``script``.

        Raises if the server does not reply or does not have the selected back end.
        """
        return self._run(self._calls.ready())

    def close(self) -> None:
        """Ends the limiter. Later calls, and those in line, raise :class:`LimiterClosed`.

        Refunds prefetched permits that were not used, and ends held leases and open admissions.
        Calls that were sent get their replies, for which it waits at most ``timeout_ms``.
        """
        calls = self._calls
        with self._use.closing:
            if calls.is_closed:
                return
            ends_at = calls.clock() + calls.timeout_s
            calls.is_closed = True
            self._renewer.close()
            self._run(calls.give_back(ends_at))
            quiet = getattr(self._transport, "quiet", lambda timeout_s: None)
            quiet(max(0.0, ends_at - calls.clock()))
            with self._use.took:
                self._use.took.wait_for(
                    lambda: not self._use.taking, max(0.0, ends_at - calls.clock())
                )
            self._renewer.join(max(0.0, ends_at - calls.clock()))
            calls.sender.has_ended = True
            self._transport.close()
            with self._use.took:
                # The calls that this interrupts give back what they may have taken.
                self._use.took.wait_for(lambda: not self._use.taking, calls.tick_s)
            self._renewer.give_up()
            calls.events.close()

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _admit(
        self, items: Sequence[Item], tag: str | None, id: str | None = None
    ) -> tuple[Decision, list[Lease]]:
        """Sends one call for all rules. The leases among them are renewed until released."""
        steps = take(self._calls, items, tag, new_id(id), self._abandon)
        taken, holds = self._take(steps)
        if taken.decision is None:
            raise Unavailable("there is no decision")
        return taken.decision, [Lease(hold, self._renewer) for hold in holds]

    def _admitted(
        self, items: Sequence[Item], tag: str | None, id: str | None
    ) -> tuple[Entry, list[Hold]]:  # fmt: skip
        name = new_id(id)
        check_admission(self._calls, items, tag, name)
        steps = take(self._calls, items, tag, name, self._abandon, is_admission=True)
        taken, holds = self._take(steps)
        return allowed(taken), holds

    def _take(self, steps: Steps[Entry]) -> tuple[Entry, list[Hold]]:
        """Returns a call, and what it took. The close of the limiter waits until that is kept."""
        with self._use.took:
            self._use.taking += 1
        try:
            taken: Entry = self._run(steps)
            if taken.decision is None or not taken.decision.allowed:
                return taken, []
            holds = holds_of(self._calls, taken, estimates=taken.is_admission)
            self._renewer.keep(holds)
            return taken, holds
        finally:
            with self._use.took:
                self._use.taking -= 1
                self._use.took.notify_all()

    def _abandon(self, taken: Entry) -> None:
        self._renewer.abandon(holds_of(self._calls, taken))
