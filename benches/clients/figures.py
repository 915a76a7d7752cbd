"""The values of a case of `pressure.py`, and their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

INFINITE = float("inf")


@dataclass(frozen=True)
class Figure:
    """A value and its bound: `most`, and `least` for a value that may also be too low."""

    name: str
    value: float
    most: float = INFINITE
    least: float = -INFINITE
    unit: str = ""
    digits: int = 0

    @property
    def excess(self) -> float:
        """The distance to the nearer bound; above 0 if the bound is not met."""
        return max(self.value - self.most, self.least - self.value)

    @property
    def text(self) -> str:
        """The name and the value."""
        return f"{self.name} {self.value:,.{self.digits}f}{self.unit}"

    @property
    def bound(self) -> str:
        """The bound; empty if there is none."""
        if self.most == INFINITE:
            return f">= {self.least:,.0f}{self.unit}" if self.least > -INFINITE else ""
        least = f"{self.least:,.0f} to" if self.least > -INFINITE else "<="
        return f"{least} {self.most:,g}{self.unit}"


Figures = list[Figure]
Measured = Iterator[tuple[str, Figures]]


def case_of(case: str, *figures: Figure) -> tuple[str, Figures]:
    """Returns a case with its figures."""
    return case, list(figures)
