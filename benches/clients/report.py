"""The figures of the clients, their bars, and the page with both."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = "ours"
PREFETCHES = (1, 10, 100)
ONE_AT_A_TIME = "one key, one at a time"
MANY_KEYS = "10,000 keys"
# It has no deadline, no breaker and no limit of its calls in flight, so its calls cost least.
CHEAPEST = "express-rate-limit with rate-limit-redis"
# The least gain in calls per second on one key. redis_rate is a script. bucket4j decides in the
# program, and begins again if another call of the key came between.
GAINS = {"redis_rate": 1.2, "bucket4j": 3}
LOCAL_CALLS = 30_000
DENIALS = 100_000


@dataclass
class Figures:
    """The figures of one contestant in one scenario. Each list has one value per round."""

    rate: list[float] = field(default_factory=list)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    reached: list[float] = field(default_factory=list)
    denied: list[float] = field(default_factory=list)
    # Only of programs that measure it.
    allocated: list[float] = field(default_factory=list)

    def add(self, reply: dict[str, Any], reached: int) -> None:
        """Adds the reply of a program. `reached` counts its calls that arrived at the server.

        A program that starts a process for each job also counts the calls of its warm-up.
        """
        calls = max(1, reply["calls"])
        self.rate.append(reply["calls"] / reply["seconds"])
        self.p50_us.append(float(reply["p50_us"]))
        self.p99_us.append(float(reply["p99_us"]))
        self.cpu_us.append(reply["cpu_seconds"] / calls * 1e6)
        self.reached.append(reached / (calls + reply.get("warm_calls", 0)))
        self.denied.append(reply["denied"] / calls)
        if "allocated_bytes" in reply:
            self.allocated.append(reply["allocated_bytes"])


@dataclass
class Excess:
    """The calls allowed above a limit and the units not refunded, in each round with prefetch."""

    over: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)


@dataclass
class Results:
    """All figures of one language."""

    contestants: dict[str, str]
    figures: dict[tuple[str, str], Figures] = field(default_factory=dict)
    excess: dict[tuple[str, int], Excess] = field(default_factory=dict)
    medians_us: dict[tuple[str, str], float] = field(default_factory=dict)


def ratio(of: Figures, to: Figures, value: Callable[[Figures], list[float]]) -> float:
    """Returns the median over all rounds of the ratio `of` / `to` within a round."""
    pairs = zip(value(of), value(to), strict=True)
    return statistics.median(ours / max(theirs, 1e-9) for ours, theirs in pairs)


@dataclass(frozen=True)
class Bar:
    """A figure with its bar, the value that it must reach."""

    language: str
    what: str
    figure: float
    sign: str
    needed: float

    @property
    def is_met(self) -> bool:
        """Returns true if the figure meets its bar."""
        return self.figure >= self.needed if self.sign == ">=" else self.figure <= self.needed


def is_ours(contestant: str) -> bool:
    """Returns true for a client of this repository, `ours` or `ours, asyncio`."""
    return contestant.partition(", ")[0] == OURS


def rivals(contestants: dict[str, str]) -> list[tuple[str, str]]:
    """Pairs each client with the usual libraries of its kind, the word after the comma."""

    def kind(name: str) -> str:
        return name.partition(", ")[2]

    ours = [name for name in contestants if is_ours(name)]
    others = [name for name in contestants if not is_ours(name)]
    return [(mine, other) for mine in ours for other in others if kind(mine) == kind(other)]


def bars(language: str, results: Results) -> list[Bar]:
    """Returns the figures of a language with their bars."""
    found: list[Bar] = []
    get = results.figures.__getitem__
    most = f"one key, prefetch {PREFETCHES[-1]}"
    for ours, usual in rivals(results.contestants):
        for scenario in ("one key", MANY_KEYS, "flood"):
            if (ours, scenario) not in results.figures:
                continue
            mine, theirs = get((ours, scenario)), get((usual, scenario))
            rate = ratio(mine, theirs, lambda figures: figures.rate)
            p99 = ratio(mine, theirs, lambda figures: figures.p99_us)
            gain = GAINS.get(usual, 1) if scenario == "one key" else 1
            found.append(Bar(language, f"{scenario}, calls/s against {usual}", rate, ">=", gain))
            is_cheapest = usual == CHEAPEST
            needed = 1.1 if is_cheapest else 1
            found.append(Bar(language, f"{scenario}, p99 against {usual}", p99, "<=", needed))
            if is_cheapest:
                cpu = ratio(mine, theirs, lambda figures: figures.cpu_us)
                what = f"{scenario}, CPU per call against {usual}"
                found.append(Bar(language, what, cpu, "<=", 1))
        hot = ratio(get((ours, most)), get((usual, "one key")), lambda figures: figures.rate)
        found.append(Bar(language, f"{most}, calls/s against {usual}", hot, ">=", 10))
    for ours in filter(is_ours, results.contestants):
        reached = statistics.median(get((ours, "flood, denial cache")).reached)
        what = f"flood, denial cache: share sent to the server, {ours}"
        found.append(Bar(language, what, reached, "<=", 0.02))
        for prefetch in PREFETCHES:
            excess = results.excess[ours, prefetch]
            what = f"limit reached, prefetch {prefetch}: maximum excess, {ours}"
            found.append(Bar(language, what, max(excess.over), "<=", prefetch))
        kept = [abs(n) for prefetch in PREFETCHES for n in results.excess[ours, prefetch].kept]
        what = f"limit reached, closed: units not refunded, {ours}"
        found.append(Bar(language, what, max(kept), "<=", 1))
        what = f"local sliding window after {LOCAL_CALLS:,} calls of a key: us per call, {ours}"
        found.append(Bar(language, what, results.medians_us[ours, "local"], "<=", 20))
        what = f"forget and refund with {DENIALS:,} denials cached: us per call, {ours}"
        found.append(Bar(language, what, results.medians_us[ours, "forget"], "<=", 1000))
    return found


Table = list[list[str]]


def align(head: list[str], rows: Table) -> str:
    """Formats a table for the screen and the page, with texts aligned left and figures right."""
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    left = [not all(re.match(r"[-<>= ]*[\d.]", row[at]) for row in rows) for at in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [cell.ljust(width) if is_left else cell.rjust(width)
                  for cell, width, is_left in zip(cells, widths, left, strict=True)]  # fmt: skip
        return f"| {' | '.join(padded)} |"

    marks = ["-" * width if is_left else "-" * (width - 1) + ":"
             for width, is_left in zip(widths, left, strict=True)]  # fmt: skip
    return "\n".join(map(line, [head, marks, *rows]))


@dataclass(frozen=True)
class Sheet:
    """A table with a name. Its first `labels` columns name the row, the others are values."""

    name: str
    labels: int
    head: list[str]
    rows: Table

    @property
    def page(self) -> str:
        """The table as it stands on the page; empty without rows."""
        return align(self.head, self.rows) if self.rows else ""

    @property
    def tsv(self) -> str:
        """One line per value: the sheet, the row, the column and the value without commas."""
        names = ["verdict" if column == "" else column for column in self.head[self.labels :]]
        lines = []
        for row in self.rows:
            label = ": ".join(row[: self.labels])
            for column, cell in zip(names, row[self.labels :], strict=True):
                value = cell.replace(",", "") if re.fullmatch(r"[\d,.]+", cell) else cell
                lines.append("\t".join([self.name, label, column, value]) + "\n")
        return "".join(lines)


TSV_HEADING = "table\trow\tcolumn\tvalue\n"


def number(value: float) -> str:
    """Formats a measurement to three digits, and a count in full."""
    if isinstance(value, int):
        return f"{value:,}"
    if value < 0.1:
        return f"{value:.3f}"
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def figures_table(all_results: dict[str, Results]) -> Sheet:
    """Returns the table of every contestant in every scenario."""
    rows: Table = []
    for language, results in all_results.items():
        for (contestant, scenario), figures in sorted(results.figures.items(), key=in_order):
            of = [figures.rate, figures.p50_us, figures.p99_us, figures.cpu_us]
            medians = [number(statistics.median(values)) for values in of]
            denied, reached = (
                f"{statistics.median(values):.1%}" for values in (figures.denied, figures.reached)
            )
            rows.append([language, scenario, contestant, *medians, denied, reached])
    head = ["", "scenario", "contestant", "calls/s", "p50, us", "p99, us", "CPU per call, us"]
    return Sheet("figures", 3, [*head, "denied", "sent to server"], rows)


def in_order(item: tuple[tuple[str, str], Figures]) -> tuple[int, bool, str]:
    """Sorts by scenario in the order of measurement, clients of this repository first."""
    (contestant, scenario), _ = item
    prefetching = [f"one key, prefetch {n}" for n in PREFETCHES]
    names = ["one key", ONE_AT_A_TIME, MANY_KEYS, *prefetching, "flood"]
    at = names.index(scenario) if scenario in names else len(names)
    return at, not is_ours(contestant), contestant


def allocation_table(all_results: dict[str, Results]) -> Sheet:
    """Returns the table of the bytes allocated per call, for programs that measure them."""
    rows = [
        [language, scenario, contestant, number(round(statistics.median(figures.allocated)))]
        for language, results in all_results.items()
        for (contestant, scenario), figures in sorted(results.figures.items(), key=in_order)
        if figures.allocated
    ]
    return Sheet("allocated", 3, ["", "scenario", "contestant", "allocated per call, B"], rows)


def bars_table(found: list[Bar]) -> Sheet:
    """Returns the table of the bars and their results."""
    rows = [[bar.language, bar.what, number(bar.figure), f"{bar.sign} {bar.needed:g}",
             "met" if bar.is_met else "MISSED"] for bar in found]  # fmt: skip
    return Sheet("bars", 2, ["", "figure", "is", "bar", ""], rows)


def machine(server: str) -> Table:
    """Returns the first rows of a table of conditions: the date, the server and the machine."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    cpu = model[1] if model else platform.machine()
    return [["date", datetime.datetime.now(datetime.UTC).date().isoformat()],
            ["server", server],
            ["CPU", f"{cpu}, {os.cpu_count()} cores"]]  # fmt: skip


def conditions(server: str, all_results: dict[str, Results], rounds: int, load: str) -> Sheet:
    """Returns the table of the conditions of the measurement."""
    rows = [*machine(f"{server}, on a unix socket"), ["rounds", f"{rounds}, each job {load}"]]
    for language, results in all_results.items():
        rows += [[f"{language}: {name}", what] for name, what in results.contestants.items()]
    return Sheet("environment", 1, ["what", "which"], rows)


TEXT = """# Clients compared with the usual libraries

`make bench-clients` wrote this page. `ours` is the client of this repository. All contestants of a
language have the same driver and the same number of calls in flight. They share one process; in
Java, JMH starts a process for each job, which warms up first. Figures are medians of the rounds;
the bars compare medians of the ratios within a round. The server has a core of its own. In a flood,
one of a hundred calls may pass. With one call at a time, a call lasts one round trip. In that time
at most `prefetch` permits arrive, plus one per call in flight. "Sent to server" is the share of the
program's calls that reached the server; httprate-redis sends five commands for an allowed call, and
of bucket4j only the compare-and-swaps are counted. "Excess" is the number of calls allowed above
the limit. "Units not refunded" is what the key lacks after the limiter is closed. "Allocated" is
what all threads of the process allocate, by JMH's `gc` profiler (`gc.alloc.rate.norm`).
"""


def report(server: str, all_results: dict[str, Results], rounds: int, load: str) -> tuple[str, str]:
    """Returns the whole page, and its figures as tab-separated values."""
    found = [bar for language, results in all_results.items() for bar in bars(language, results)]
    met = sum(bar.is_met for bar in found)
    environment = conditions(server, all_results, rounds, load)
    figures, allocated = figures_table(all_results), allocation_table(all_results)
    judged = bars_table(found)
    parts = [TEXT.strip(), environment.page, figures.page, allocated.page,
             f"{met} of {len(found)} bars are met.", judged.page]  # fmt: skip
    sheets = (environment, figures, allocated, judged)
    data = TSV_HEADING + "".join(sheet.tsv for sheet in sheets)
    return "\n\n".join(filter(None, parts)) + "\n", data
