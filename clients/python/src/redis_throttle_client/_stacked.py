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
from ._rules import Item

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


def groups(
    limiter: AsyncLimiter, asked: Sequence[RequestItems]
) -> Iterator[tuple[RequestItems, dict[int, list[int]]]]:
    """Yields the items of each call, and the places in it of the items of each limit, by its index.

    One call has one hash tag, and in a cluster one slot. Limits that have the same rule and key
    share an item, with the higher cost. Limits that take nothing are left out.
    """
    slot_of = getattr(limiter._transport, "slot", lambda key: 0)
    items, keys, places, kind = list[Item](), list[str](), dict[int, list[int]](), None
    for at, one in enumerate(asked):
        if not one.items:
            continue
        own = [limiter._calls.key(item.rule, item.subject, one.tag) for item in one.items]
        known = {key: keys.index(key) for key in own if key in keys}
        own_kind = one.tag, {slot_of(key) for key in own}
        # Rules may share a name, and so a key, although they differ.
        shared = [(item, known.get(key)) for key, item in zip(own, one.items, strict=True)]
        fits = own_kind == kind and all(
            place is None or items[place].rule == item.rule for item, place in shared
        )
        if not fits or len(keys) + len(own) - len(known) > MOST_RULES:
            if items:
                yield RequestItems(items, asked[next(iter(places))].tag), places
            items, keys, places, known = [], [], {}, {}
        places[at] = []
        for key, item in zip(own, one.items, strict=True):
            place = known.get(key, len(items))
            if key in known:
                items[place] = replace(item, units=max(item.units, items[place].units))
            else:
                items.append(item)
                keys.append(key)
            places[at].append(place)
        kind = own_kind
    if items:
        yield RequestItems(items, asked[next(iter(places))].tag), places


def parts(decision: Decision, places: Mapping[int, Sequence[int]]) -> dict[int, Decision]:
    """Returns the decision of each limit, whose rows stand at ``places``."""
    if len(places) == 1:
        return dict.fromkeys(places, decision)
    all_rows, found = decision.rows or (decision,), dict[int, Decision]()
    for limit, own in places.items():
        rows = tuple(all_rows[place] for place in own)
        strictest = max(rows, key=severity)
        if len(rows) > 1:
            strictest = replace(strictest, rows=rows, deciding=rows.index(strictest))
        found[limit] = strictest
    return found
