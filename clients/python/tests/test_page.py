"""Tests that the pages name every option, method and field. test_programs.py runs their code."""

from __future__ import annotations

import re
from dataclasses import fields

from redis_throttle_client import Decision, Limiter
from redis_throttle_client._web.http import MiddlewareOptions

from .conftest import ROOT

PAGE = (ROOT / "docs/clients/python.md").read_text()
CLIENTS = (ROOT / "docs/clients/README.md").read_text()
SPECIFICATION = (ROOT / "clients/SPEC.md").read_text()
OPTION = re.compile(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", re.MULTILINE)


def documented(section: str) -> set[str]:
    """Returns the names in the table of a section of the specification."""
    text = SPECIFICATION.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {name for row in OPTION.findall(text) for name in re.findall(r"`(\w+)`", row)}


def test_the_specification_names_every_option_of_the_middleware() -> None:
    assert documented("Middleware") == {*MiddlewareOptions.__annotations__, "rules"}


def test_the_pages_name_every_method_and_field() -> None:
    shared = CLIENTS.split("\n## Calls\n")[1].split("\n## ")[0]
    section = shared + PAGE.split("\n## Rules and calls\n")[1].split("\n## ")[0]
    calls = {name for name in vars(Limiter) if not name.startswith("_")}
    assert [name for name in sorted(calls) if f"`{name}" not in section] == []
    table = SPECIFICATION.split("\n## Decisions\n")[1].split("\n## ")[0]
    named = {one.name for one in fields(Decision)} - {"window_us"}
    assert [name for name in sorted(named) if f"`{name}`" not in table] == []
