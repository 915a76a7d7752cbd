"""Measures whether limits hold under pressure, with every client and the gateway.

    make bench-clients ONLY=pressure                    all of it, into docs/bench/pressure.md
    make bench-clients ONLY=pressure LANGUAGES='go python' ROWS='herd stalls' ROUNDS=1

Each run has a server, a program in the language, and often a proxy between them. The program and
the server share the first core; proxies and this process have the second. A program makes the calls
of a job and returns the time and the outcome of each (`python/pressure.py` describes both).
`rows.py` has what happens to the server meanwhile, and what a run is judged by. The table has the
worst values of all rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import rows
from figures import Figure, Figures
from proxy import Proxies
from report import TSV_HEADING, Sheet, machine
from rows import Row
from scene import LANGUAGES, ROOT, SERVICES, Failure, Language, Tools, cores
from server import Server, options_of

PAGE = ROOT / "docs/bench/pressure.md"
# Runs of calm rows at a time, and the pause between their beginnings, which is the time in which a
# program that starts takes a core. A JVM takes it for so long that its runs are alone.
CALM_RUNS, CALM_PAUSE_S = 8, 0.8

Key = tuple[str, str]


class Results:
    """The worst figures of each case and language."""

    def __init__(self) -> None:
        self._worst: dict[Key, Figures] = {}
        self._lock = threading.Lock()

    def add(self, case: str, language: str, figures: Figures, notes: str) -> None:
        """Adds the figures of a run, and reports those that miss a bound."""
        with self._lock:
            before = self._worst.get((case, language), figures)
            worse = [max(pair, key=lambda figure: figure.excess)
                     for pair in zip(before, figures, strict=True)]  # fmt: skip
            self._worst[case, language] = worse
            mark = "" if is_met(figures) else "MISSED "
            print(f"  {mark}{case}, {language}: {values(figures)} ({notes})", file=sys.stderr)

    @property
    def missed(self) -> int:
        """The number of cases that missed a bound."""
        return sum(not is_met(figures) for figures in self._worst.values())

    def __len__(self) -> int:
        return len(self._worst)

    def table(self) -> Sheet:
        """Returns the table, in the order of the rows and of the languages."""
        cases = list(dict.fromkeys(case for case, _ in self._worst))
        order = [language.name for language in [*LANGUAGES, *SERVICES]]

        def place(key: Key) -> tuple[int, int]:
            return cases.index(key[0]), order.index(key[1])

        lines = []
        for key in sorted(self._worst, key=place):
            figures = self._worst[key]
            bounds = ", ".join(figure.bound for figure in figures if figure.bound)
            lines.append([*key, values(figures), bounds, "met" if is_met(figures) else "MISSED"])
        return Sheet("cases", 2, ["case", "client", "worst", "bound", ""], lines)


def is_met(figures: Figures) -> bool:
    """Returns true if all bounds are met."""
    return all(figure.excess <= 0 for figure in figures)


def values(figures: Figures) -> str:
    """Returns the values."""
    return ", ".join(figure.text for figure in figures)


def options() -> argparse.Namespace:
    """Parses the command line. `make` passes the default values in environment variables."""
    parser, environ = options_of(__doc__), os.environ.get
    parser.add_argument("--languages", default=environ("LANGUAGES") or "")
    parser.add_argument("--rows", default=environ("ROWS") or "")
    return parser.parse_args()


def chosen_words(name: str, text: str, known: list[str]) -> list[str]:
    """Returns the words of an option, all known ones by default."""
    words = text.replace(",", " ").split()
    for word in words:
        if word not in known:
            sys.exit(f"redis-throttle: unknown {name}={word}: expected {', '.join(known)}")
    return words or known


Run = tuple[Row, Language]


def is_calm(run: Run) -> bool:
    """Returns true for a run that leaves the others next to it undisturbed."""
    row, language = run
    return row.calm and not language.name.startswith("java")


def runs(languages: list[str], names: list[str]) -> Iterator[Run]:
    """Yields the runs of a round."""
    for row in rows.ROWS:
        for language in [*LANGUAGES, *SERVICES]:
            is_chosen = language.name.partition(",")[0] in languages and row.name in names
            if is_chosen and row.is_for(language):
                yield row, language


def measure(tools: Tools, run: Run, results: Results) -> None:
    """Measures a run and adds its figures."""
    row, language = run
    try:
        for case, figures, notes in rows.measure_row(tools, row, language):
            results.add(case, language.name, figures, notes)
    except Failure as failure:
        results.add(f"{row.name} has failed", language.name, [Figure("runs", 1, 0)], str(failure))


def measure_calm(tools: Tools, calm: list[Run], results: Results) -> None:
    """Measures calm runs, several at a time, each begun when the start of the last one is over."""
    with ThreadPoolExecutor(CALM_RUNS) as pool:
        free = threading.Semaphore(CALM_RUNS)
        started = []
        for run in calm:
            free.acquire()
            future = pool.submit(measure, tools, run, results)
            future.add_done_callback(lambda _: free.release())
            started.append(future)
            time.sleep(CALM_PAUSE_S)
        for future in as_completed(started):
            future.result()


TEXT = """# Limits under pressure

`make bench-clients ONLY=pressure` wrote this page. A program, or an example application, and the
server share one core; proxies that delay or drop have another. Each program has the client's
default options, and the gateway its own. Values are the worst of all rounds.

In a herd, 64 callers, or 10,000 calls at once, meet a limit of 1,000: `fixed` 1,000 in 1 h;
`gcra(1000, 6000/min)`, less what refills meanwhile; 100 keys of limit 10. `degraded` calls had no
answer. `by on_error` is their number; for applications and the gateway, the replies that the server
did not decide. "Healed" is the time until the server decides all calls again.
"""


def page(server: str, rounds: int, busy: float, results: Results) -> tuple[str, str]:
    """Returns the whole page, and its figures as tab-separated values."""
    rows = [*machine(server), ["rounds", f"{rounds}; load average before {busy:.2f}"]]
    conditions, table = Sheet("environment", 1, ["what", "which"], rows), results.table()
    met = f"{len(results) - results.missed} of {len(results)} cases meet their bounds."
    parts = [TEXT.strip(), conditions.page, met, table.page]
    return "\n\n".join(parts) + "\n", TSV_HEADING + conditions.tsv + table.tsv


def main() -> None:
    """Measures and prints the table; writes the page if all of it was measured."""
    chosen = options()
    all_languages = list(dict.fromkeys(one.name.partition(",")[0] for one in
                                       [*LANGUAGES, *SERVICES]))  # fmt: skip
    all_rows = list(dict.fromkeys(row.name for row in rows.ROWS))
    languages = chosen_words("LANGUAGES", chosen.languages, all_languages)
    names = chosen_words("ROWS", chosen.rows, all_rows)
    busy = os.getloadavg()[0]
    on_first, take_second = cores()
    take_second()
    module = str(Path(chosen.module).resolve())
    tools = Tools(chosen.server, module, on_first, Proxies())
    with Server(tools.command([chosen.server]), module) as server:
        version = server.version()
    planned, results = list(runs(languages, names)), Results()
    for number in range(1, chosen.rounds + 1):
        print(f"round {number} of {chosen.rounds}", file=sys.stderr)
        for run in planned:
            if not is_calm(run):
                measure(tools, run, results)
        measure_calm(tools, [run for run in planned if is_calm(run)], results)
    text, data = page(version, chosen.rounds, busy, results)
    print(text[text.index("| what") :])
    if not chosen.print and languages == all_languages and names == all_rows:
        PAGE.write_text(text)
        PAGE.with_suffix(".tsv").write_text(data)
        print(f"written to {PAGE.relative_to(ROOT)}", file=sys.stderr)
    sys.exit(1 if results.missed else 0)


if __name__ == "__main__":
    main()
