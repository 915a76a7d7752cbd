"""Reservations: admissions of one item, which are committed or cancelled."""

from __future__ import annotations

from .admission import Admission, AsyncAdmission


class Reservation(Admission):
    """A reservation of a thread. Without a commit, the end cancels it."""

    def commit(self, actual: int) -> None:
        """Settles the units that the work took, and ends the reservation.

        >>> tokens = quota("tokens", 100_000, "month")
        >>> reserved = limiter.reserve(tokens, "42", 500)
        >>> reserved.commit(420)
        >>> limiter.peek(tokens, "42", cost=0).remaining
        99580
        """
        self.settle(self._holds[0].item, actual)
        self.finish()

    def cancel(self) -> None:
        """Ends the reservation. It used nothing."""
        self._unsettle()
        self.finish()


class AsyncReservation(AsyncAdmission):
    """A reservation of a task. Without a commit, the end cancels it."""

    async def commit(self, actual: int) -> None:
        """The same as :meth:`Reservation.commit`."""
        self.settle(self._holds[0].item, actual)
        await self.finish()

    async def cancel(self) -> None:
        """The same as :meth:`Reservation.cancel`."""
        self._unsettle()
        await self.finish()
