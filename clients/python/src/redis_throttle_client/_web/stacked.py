"""The limits of a FastAPI route that follow one another, so that one call decides them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._calls.fallback import severity
from .._limiter_async import AsyncLimiter
from .._rules.decision import Decision
from .._rules.rule import Item
from .._wire.words import MOST_RULES
from .counting import RequestItems

Limited = Callable[..., Any]
"""The function of a dependency."""


def following(
    limited: Limited, scope: Mapping[str, Any], limits: Container[Limited]
) -> list[Limited]:
    """Returns the limit, and those after it up to the next dependency of another kind.

    That one, such as an authentication, may refuse the request, or find the subject of the limits
    after it. So they are not checked before it has run.
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


def groups(limiter: AsyncLimiter, requested: Sequence[RequestItems]) -> Iterator[list[int]]:
    """Yields the indexes of the limits that one call can decide.

    These have one hash tag, a key for each item, and in a cluster one slot. Limits that take
    nothing are left out.
    """
    slot_of = getattr(limiter._transport, "slot", lambda key: 0)
    group, keys, kind = list[int](), set[str](), None
    for at, one in enumerate(requested):
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


def once(requested: Sequence[RequestItems]) -> tuple[list[RequestItems], list[list[int]]]:
    """Returns what each limit adds to those before it, and the places of its rows among all.

    The same rule with the same subject counts once, with the highest of its costs.
    """
    kept: list[tuple[str | None, Item]] = []
    rest, places = list[RequestItems](), list[list[int]]()
    sizes = [0]
    for one in requested:
        own = []
        for item in one.items:
            name = one.tag, item.subject, item.rule
            same = (at for at, (tag, by) in enumerate(kept) if (tag, by.subject, by.rule) == name)
            at = next(same, len(kept))
            if at == len(kept):
                kept.append((one.tag, item))
            elif item.units > kept[at][1].units:
                kept[at] = one.tag, item
            own.append(at)
        places.append(own)
        sizes.append(len(kept))
    for one, start, end in zip(requested, sizes, sizes[1:], strict=False):
        rest.append(RequestItems([item for _, item in kept[start:end]], one.tag))
    return rest, places


def parts(
    decisions: Sequence[Decision], places: Sequence[Sequence[int]]
) -> list[Decision | None]:  # fmt: skip
    """Returns the decision of each limit, whose rows among those of all calls are at ``places``."""
    rows, calls = list[Decision](), dict[tuple[int, ...], Decision]()
    # The decision of a call is that of a limit alone in it, and may contain more than its rows.
    for decision in decisions:
        own = decision.rows or (decision,)
        calls[tuple(range(len(rows), len(rows) + len(own)))] = decision
        rows += own
    found = list[Decision | None]()
    for each in map(tuple, places):
        whole = calls.get(each)
        found.append(_joined(tuple(rows[at] for at in each)) if whole is None else whole)
    return found


def _joined(rows: tuple[Decision, ...]) -> Decision | None:
    if len(rows) < 2:
        return rows[0] if rows else None
    at = max(range(len(rows)), key=lambda at: severity(rows[at]))
    return replace(rows[at], rows=rows, deciding=at)
