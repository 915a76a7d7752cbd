"""Leases: held during work, renewed after each third of their ttl, released at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._rules.decision import Decision, Denied
from .._rules.errors import Unavailable
from .._rules.rule import Rule
from .ending import Keeper, Renewer
from .hold import Hold


class _Held:
    """The common part of both leases."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    @property
    def rule(self) -> Rule:
        """The rule of the lease."""
        return self._hold.item.rule

    @property
    def key(self) -> str:
        """The key of the lease."""
        return self._hold.key

    @property
    def id(self) -> str:
        """The name of the holder."""
        return self._hold.taken.id

    @property
    def decision(self) -> Decision:
        """The decision that granted the lease."""
        if self._hold.taken.decision is None:
            raise Unavailable("the lease was not received")
        return self._hold.taken.decision

    @property
    def held(self) -> bool:
        """True while this process holds the permit. A degraded lease is held until released."""
        return self._hold.held

    @property
    def released(self) -> bool:
        """True after the release."""
        return self._hold.is_ended


class Lease(_Held):
    """A permit that a thread holds."""

    def __init__(self, hold: Hold, renewer: Renewer) -> None:
        super().__init__(hold)
        self._renewer = renewer

    def renew(self) -> bool:
        """Renews the permit for another ttl. Returns False if it is lost: stop the work then."""
        return bool(self._renewer.run(self._hold.renew()))

    def release(self) -> None:
        """Releases the permit. Without a reply, repeats that in the background."""
        self._renewer.end([self._hold])

    def _release_soon(self) -> None:
        self._renewer.abandon([self._hold])


class AsyncLease(_Held):
    """A permit that a task holds."""

    def __init__(self, hold: Hold, keeper: Keeper) -> None:
        super().__init__(hold)
        self._keeper = keeper

    async def renew(self) -> bool:
        """Renews the permit for another ttl. Returns False if it is lost: stop the work then."""
        return bool(await self._keeper.run(self._hold.renew()))

    async def release(self) -> None:
        """Releases the permit, even if its task is cancelled in the meantime.

        Without a reply, repeats that in the background.
        """
        await self._keeper.end([self._hold])

    def _release_soon(self) -> None:
        self._keeper.end_soon([self._hold])


def release_soon(leases: Sequence[Lease] | Sequence[AsyncLease]) -> None:
    """Releases leases in the background. The close of the limiter waits for that."""
    for lease in leases:
        lease._release_soon()


class LeaseContext:
    """The context of ``with limiter.lease(rule, subject) as lease``. Raises Denied."""

    def __init__(self, take: Callable[[], tuple[Decision, list[Lease]]]) -> None:
        self._take = take
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        decision, leases = self._take()
        if not decision.allowed:
            raise Denied(decision)
        self._lease = leases[0]
        return leases[0]

    def __exit__(self, *exc: object) -> None:
        if self._lease is not None:
            self._lease.release()


class AsyncLeaseContext:
    """The context of ``async with limiter.lease(rule, subject) as lease``. Raises Denied."""

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take
        self._lease: AsyncLease | None = None

    async def __aenter__(self) -> AsyncLease:
        decision, leases = await self._take()
        if not decision.allowed:
            raise Denied(decision)
        self._lease = leases[0]
        return self._lease

    async def __aexit__(self, *exc: object) -> None:
        if self._lease is not None:
            await self._lease.release()
