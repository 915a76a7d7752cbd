"""Runs every Python program of the pages that uses the client, and checks its types.

A program is a block in Python that names the package. It runs by itself. The other blocks, of a
driver alone, belong to tests/snippets.rs of the repository.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import flask
import httpx
import pytest
from django.test import Client, override_settings
from django.urls import path as route
from fastapi import FastAPI
from fastapi.routing import APIRoute

from redis_throttle_client._rules.options import Options

from .conftest import ROOT, Server
from .test_rest_framework import APIView

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SKIPPED = {"dist", "node_modules", "target"}
# What a program prints that contains a call.
PRINTED = {
    'print(f"allowed, ': "allowed, 9 left\n",
    'print(tokens, "tokens")': "1240 tokens\n",
}


def pages() -> Iterator[Path]:
    """Yields the pages of the repository."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [one for one in folders if one not in SKIPPED and not one.startswith(".")]
        yield from (Path(folder, file) for file in files if file.endswith(".md"))


def programs() -> dict[str, str]:
    """Returns the programs by their page and line."""
    found = {}
    for page in pages():
        text = page.read_text()
        for block in FENCE.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            if block[1] in {"py", "python"} and "redis_throttle_client" in block[2]:
                found[f"{page.relative_to(ROOT)}:{line}"] = block[2]
    return dict(sorted(found.items()))


PROGRAMS = programs()


def test_the_pages_of_the_client_have_programs() -> None:
    named = {name.split(":")[0] for name in PROGRAMS}
    own = {"clients/python/README.md", "docs/clients/python.md"}
    assert {"README.md", *own} <= named


def test_every_block_of_the_page_is_a_program() -> None:
    text = (ROOT / "docs/clients/python.md").read_text()
    blocks = [language for language, _ in FENCE.findall(text) if language != "sh"]
    assert len(blocks) == len([one for one in PROGRAMS if one.startswith("docs/clients/python.md")])


def test_every_program_has_strict_types(tmp_path: Path) -> None:
    files = []
    for name, program in PROGRAMS.items():
        files.append(tmp_path / (re.sub(r"\W", "_", name) + ".py"))
        files[-1].write_text(program)
    # The driver's own functions are not all typed.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--untyped-calls-exclude=redis"]
    here = ROOT / "clients/python"
    run = subprocess.run([*mypy, *files], cwd=here, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def statuses_of_asgi(app: FastAPI, path: str) -> list[int]:
    async def get() -> list[int]:
        transport = httpx.ASGITransport(app)
        user = {"X-User": "alice"}
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return [(await client.get(path, headers=user)).status_code for _ in range(11)]

    return asyncio.run(get())


def statuses(thing: Any) -> dict[str, list[int]]:
    """Returns the statuses of eleven requests to an application for each of its paths."""
    if isinstance(thing, FastAPI):
        paths = [route.path for route in thing.routes if isinstance(route, APIRoute)]
        return {path: statuses_of_asgi(thing, path) for path in paths}
    if isinstance(thing, flask.Flask):
        paths = [rule.rule for rule in thing.url_map.iter_rules() if not rule.arguments]
        with thing.test_client() as client:
            return {path: [client.get(path).status_code for _ in range(11)] for path in paths}
    if isinstance(thing, type) and issubclass(thing, APIView) and thing is not APIView:
        return {thing.__name__: statuses_of_view(thing)}
    return {}


def statuses_of_view(view: type[APIView]) -> list[int]:
    project = ModuleType("project")
    vars(project)["urlpatterns"] = [route("", view.as_view())]
    with override_settings(ROOT_URLCONF=project):
        client = Client()
        return [client.get("/").status_code for _ in range(11)]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives limiters a timeout for busy machines."""
    init: Any = Options.__init__
    monkeypatch.setattr(init, "__defaults__", (60_000, *init.__defaults__[1:]))


@pytest.mark.live
@pytest.mark.usefixtures("patience")
# The programs do not close all their clients.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_runs(
    name: str, shared_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    program = PROGRAMS[name].replace("7777", str(shared_server.port))
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, name, "exec", dont_inherit=True), names)
    printed = [text for mark, text in PRINTED.items() if mark in program]
    assert capsys.readouterr().out == "".join(printed)
    for title, thing in list(names.items()):
        for path, found in statuses(thing).items():
            assert found == [200] * 10 + [429], path
        if title.startswith("test_"):
            result = thing()
            if inspect.iscoroutine(result):
                asyncio.run(result)
    names.clear()
    gc.collect()
