"""Tests docs/clients/python.md: runs its code, and checks that its tables are complete."""

from __future__ import annotations

import gc
import re
from dataclasses import fields
from typing import Any

import httpx
import pytest

from redis_throttle_client import Decision, Limiter
from redis_throttle_client._http import MiddlewareOptions

from .conftest import ROOT, Server

PAGE = (ROOT / "docs/clients/python.md").read_text()
CLIENTS = (ROOT / "docs/clients/README.md").read_text()
SPECIFICATION = (ROOT / "clients/SPEC.md").read_text()
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", re.MULTILINE)


def documented(section: str) -> set[str]:
    """Returns the names in the tables of a section."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {name for row in OPTION.findall(text) for name in re.findall(r"`(\w+)`", row)}


def test_the_page_names_every_option_of_the_middleware() -> None:
    options = {*MiddlewareOptions.__annotations__, "rules"}
    assert documented("FastAPI and Starlette (ASGI)") == options


def test_the_pages_name_every_method_and_field() -> None:
    shared = CLIENTS.split("\n## Calls\n")[1].split("\n## ")[0]
    section = shared + PAGE.split("\n## Quick start\n")[1].split("\n## ")[0]
    calls = {name for name in vars(Limiter) if not name.startswith("_")}
    assert [name for name in sorted(calls) if f"`{name}" not in section] == []
    table = SPECIFICATION.split("\n## Decisions\n")[1].split("\n## ")[0]
    told = {one.name for one in fields(Decision)} - {"window_us"}
    assert [name for name in sorted(told) if f"`{name}`" not in table] == []


def on(server: Server, code: str) -> str:
    """Returns the page's code with the server's port and a long timeout, for busy machines."""
    code = code.replace("7777", str(server.port))
    patient = "timeout_ms=2000"
    code = code.replace(f"Redis(port={server.port}))", f"Redis(port={server.port}), {patient})")
    code = code.replace("Limiter(server)", f"Limiter(server, {patient})")
    return code.replace('strategy="gcra"', f'strategy="gcra", storage_options=dict({patient})')


async def run_page(server: Server) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    blocks = CODE.findall(PAGE)
    assert len(blocks) == 10
    for block in blocks:
        exec(compile(on(server, block), "docs/clients/python.md", "exec", dont_inherit=True), names)
    transport = httpx.ASGITransport(names["app"])
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        found = [(await client.get("/")).status_code for _ in range(11)]
        assert found == [200] * 10 + [429]
        server.advance("60s")
        alice = {"X-User": "alice"}
        exports = [await client.get("/export", headers=alice) for _ in range(3)]
        assert [one.status_code for one in exports] == [200, 200, 429]
        assert exports[-1].headers["retry-after"] == "1800"
    await names["limiter"].close()
    for site in ("site", "shop"):
        with names[site].test_client() as flask:
            assert [flask.get("/").status_code for _ in range(11)] == [200] * 10 + [429]
    for name in [name for name in names if name.startswith("test_")]:
        names[name]()


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::ResourceWarning")
async def test_the_code_of_the_page_runs(
    shared_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    await run_page(shared_server)
    assert capsys.readouterr().out == "allowed, 9 left\nmodule\n"
    # The code of the page does not close all its clients.
    gc.collect()
