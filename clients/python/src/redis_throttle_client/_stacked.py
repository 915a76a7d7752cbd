"""The limits of a FastAPI route that follow one another, so that one call decides them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ._async_limiter import AsyncLimiter
from ._counting import RequestItems
from ._decision import Decision
from ._on_error import severity
from ._protocol import MOST_RULES

Limited = Callable[..., Any]
"""The function of a dependency."""


def following(
    limited: Limited, scope: Mapping[str, Any], limits: Container[Limited]
) -> list[Limited]:
    """Returns the limit, and those after it up to the next dependency of another kind.

    That one, such as an authentication, may refuse the request, or find the subject of the limits
    after it. So they are not asked before it has run.
    """
    overrides = getattr(scope.get("app"), "dependency_overrides", {})
    found: list[Limited] = []
    for call in _in_order(_tree(scope), overrides):
        if call not in limits:
            if limited in found:
                break
            found.clear()
        elif call not in found:
            found.append(call)
    return found[found.index(limited) :] if limited in found else [limited]


def _tree(scope: Mapping[str, Any]) -> Any:
    """Returns the dependencies of the route of a request, None if they are not found."""
    # Newer versions of FastAPI keep the route of an included router as it was before.
    context = scope.get("fastapi", {}).get("effective_route_context")
    for one in (context, getattr(context, "starlette_route", None), scope.get("route")):
        tree = getattr(one, "dependant", None)
        if tree is not None:
            return tree
    return None


def _in_order(tree: Any, overrides: Mapping[Any, Any]) -> Iterator[Any]:
    """Yields the functions of the dependencies in the order in which they are called."""
    for one in getattr(tree, "dependencies", ()):
        # The tests of an application replace functions, and so what these depend on.
        is_replaced = one.call in overrides
        if not is_replaced:
            yield from _in_order(one, overrides)
        yield None if is_replaced else one.call


def groups(limiter: AsyncLimiter, asked: Sequence[RequestItems]) -> Iterator[list[int]]:
    """Yields the indexes of the limits that one call can decide.

    These have one hash tag, a key for each item, and in a cluster one slot. Limits that take
    nothing are left out.
    """
    slot_of = getattr(limiter._transport, "slot", lambda key: 0)
    group, keys, kind = list[int](), set[str](), None
    for at, one in enumerate(asked):
        if not one.items:
            continue
        own = [limiter._calls.key(item.rule, item.subject, one.tag) for item in one.items]
        own_kind = one.tag, {slot_of(key) for key in own}
        fits = own_kind == kind and keys.isdisjoint(own) and len(keys) + len(own) <= MOST_RULES
        if group and not fits:
            yield group
            group, keys = [], set()
        group.append(at)
        keys.update(own)
        kind = own_kind
    if group:
        yield group


def parts(decision: Decision, sizes: Sequence[int]) -> list[Decision]:
    """Returns the decision of each limit, of which each has as many rows as ``sizes`` says."""
    if len(sizes) == 1:
        return [decision]
    found, first = [], 0
    for size in sizes:
        rows = decision.rows[first : first + size]
        first += size
        at = max(range(size), key=lambda at: severity(rows[at]))
        found.append(replace(rows[at], rows=rows, deciding=at) if size > 1 else rows[at])
    return found
