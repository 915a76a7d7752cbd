"""The units that a request took, and the refund of those that do not count."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from .._calls.steps import Calls
from .._holds.lease import AsyncLease, Lease
from .._limiter import Limiter
from .._limiter_async import AsyncLimiter
from .._rules.decision import Decision
from .._rules.outcome import Outcome, counts
from .._rules.rule import Item, Rule
from .._wire.call import Steps

# The functions of which a failure is logged. Later ones may be created for each request.
MOST_FUNCTIONS = 100


class Once:
    """Remembers texts and functions that were logged."""

    def __init__(self) -> None:
        self._seen: list[object] = []

    def is_new(self, thing: object, most: int | None = None) -> bool:
        """Returns True once for a thing, and never if there are already ``most`` others."""
        if most is not None and len(self._seen) >= most:
            return False
        if any(one is thing for one in self._seen):
            return False
        self._seen.append(thing)
        return True


log = logging.getLogger("redis_throttle_client")
# The functions whose failure was logged.
_failed = Once()


@dataclass(frozen=True, slots=True)
class RequestItems:
    """The items of a request, which are sent as one call."""

    items: Sequence[Item]
    tag: str | None = None

    @property
    def counts_all(self) -> bool:
        """True if no rule needs the outcome of the request."""
        return all(item.rule.count == "all" for item in self.items)


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision on the items of a request, made at the instant ``at``."""

    requested: RequestItems
    decision: Decision
    at: float

    def uncounted(self, outcome: Outcome) -> list[tuple[Rule, str, Decision]]:
        """Returns the rule, subject and row of each item that took units and does not count."""
        rows = self.decision.rows or (self.decision,)
        # In shadow mode a denial takes nothing, although the call is allowed.
        return [
            (item.rule, item.subject, row)
            for item, row in zip(self.requested.items, rows, strict=True)
            if row.granted and row.would_allow and not _counts(item.rule, outcome)
        ]


def _counts(rule: Rule, outcome: Outcome) -> bool:
    try:
        return counts(rule.count, outcome)
    except Exception:
        # The response is on its way, so it cannot become an error.
        if _failed.is_new(rule.count, MOST_FUNCTIONS):
            log.exception("count failed for the rule %s", rule.name)
        return True


def take(limiter: Limiter, requested: RequestItems) -> tuple[Decided, list[Lease]]:
    """Sends the items of a request as one call."""
    at = limiter._calls.clock()
    decision, leases = limiter._admit(requested.items, requested.tag)
    return Decided(requested, decision, at), leases


async def take_async(
    limiter: AsyncLimiter, requested: RequestItems
) -> tuple[Decided, list[AsyncLease]]:  # fmt: skip
    """The same as :func:`take`."""
    at = limiter._calls.clock()
    decision, leases = await limiter._admit(requested.items, requested.tag)
    return Decided(requested, decision, at), leases


def refund(limiter: Limiter, taken: Decided, outcome: Outcome) -> None:
    """Refunds what does not count. Raises nothing: the response is on its way."""
    servers = _return_local(limiter._calls, taken, outcome)
    if servers:
        limiter._run(_refunds(limiter._calls, servers, taken.requested.tag))


def refund_soon(limiter: AsyncLimiter, taken: Decided, outcome: Outcome) -> None:
    """Refunds what does not count; the server's units in a task that outlives its caller."""
    servers = _return_local(limiter._calls, taken, outcome)
    if servers:
        limiter._tasks.start(limiter._run(_refunds(limiter._calls, servers, taken.requested.tag)))


def _return_local(
    calls: Calls, taken: Decided, outcome: Outcome
) -> list[tuple[Rule, str, int]]:  # fmt: skip
    """Gives back the units that this process granted, and returns the calls for the others."""
    servers = []
    for rule, subject, row in taken.uncounted(outcome):
        if row.source == "server":
            servers.append((rule, subject, row.granted))
            continue
        key, now = calls.keys.key(rule.name, subject, taken.requested.tag), calls.clock()
        if row.degraded:
            calls.give_back_local(rule, key, row.granted)
        else:
            # A prefetched permit.
            calls._grants.put_back(key, rule, row, taken.at + row.reset_after_ms / 1000, now)
        calls._denials.drop(key)
    return servers


def _refunds(
    calls: Calls, units: Sequence[tuple[Rule, str, int]], tag: str | None
) -> Steps[None]:  # fmt: skip
    for rule, subject, granted in units:
        try:
            # Without a reply the units stay taken, which only makes the limit stricter.
            yield from calls.refund_quietly(Item(rule, subject, granted), tag)
        except Exception:
            log.exception("the refund failed for the rule %s", rule.name)
