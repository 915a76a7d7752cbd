"""The wire protocol: builds calls and reads replies. It does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ._decision import Decision, retry_ms
from ._errors import InvalidArgument, ProtocolError
from ._rules import Rule, checked_cost

Args = tuple[str, ...]
MOST_RULES = 16
_MOST_ID_BYTES = 128
_KEEPS_LEASE = tuple(
    (form,)
    for verb in ("renew", "release")
    for form in ("RL." + verb.upper(), "rl_" + verb, verb.upper())
)


def checked_id(id: str) -> str:
    """Validates the name of a holder: 1 to 128 bytes."""
    if not isinstance(id, str) or not 1 <= len(id.encode()) <= _MOST_ID_BYTES:
        raise InvalidArgument("id: expected 1 to 128 bytes")
    return id


def _words(rule: Rule, cost: int, id: str | None, partial: bool = False) -> Args:
    """Returns the words of a rule that follow its key."""
    if rule.kind == "lease":
        if id is None:
            raise InvalidArgument(f"id: expected a holder for the lease {rule.name}")
        if cost != 1:
            raise InvalidArgument("cost: a holder has one permit")
        return (rule.words[0], checked_id(id), *rule.words[1:])
    if cost == 1 and not partial:
        return rule.words + rule.options
    checked_cost(cost)
    if not rule.takes_cost:
        raise InvalidArgument(f"cost: expected 1 for the {rule.kind} {rule.name}")
    taken = ("COST", str(cost), "PARTIAL") if partial else ("COST", str(cost))
    if rule.kind == "quota":
        return rule.words + rule.options + taken
    return rule.words + taken + rule.options


def _no_lease(rule: Rule) -> None:
    if rule.kind == "lease":
        raise InvalidArgument("rule: a lease is taken with lease()")


def check(rule: Rule, key: str, cost: int = 1, *, partial: bool = False) -> Args:
    """Builds a call that decides and takes the cost."""
    _no_lease(rule)
    words = _words(rule, cost, None, partial)
    return ("RL." + words[0], key, *words[1:])


def named(verb: str, rule: Rule, key: str, cost: int = 1) -> Args:
    """Builds a ``PEEK``, ``REFUND`` or ``CHARGE``."""
    _no_lease(rule)
    return ("RL." + verb, key, *_words(rule, cost, None))


def forget(key: str) -> Args:
    """Builds a call that resets a key."""
    return ("DEL", key)


def lease(rule: Rule, key: str, id: str) -> Args:
    """Builds a call that takes a permit, or renews it for the same holder."""
    if rule.kind != "lease":
        raise InvalidArgument("rule: expected a lease")
    words = _words(rule, 1, id)
    return ("RL.LEASE", key, *words[1:])


def renew(rule: Rule, key: str, id: str) -> Args:
    """Builds a call that renews a permit for another ttl."""
    return ("RL.RENEW", key, checked_id(id), rule.words[2])


def release(key: str, id: str) -> Args:
    """Builds a call that releases a permit."""
    return ("RL.RELEASE", key, checked_id(id))


def check_all(
    calls: Sequence[tuple[Rule, str, int]],
    *,
    peek: bool = False,
    id: str | None = None,
) -> Args:
    """Builds a call of several rules, each with its key and cost."""
    if not 1 <= len(calls) <= MOST_RULES:
        raise InvalidArgument(f"calls: expected 1 to {MOST_RULES}")
    if len({key for _, key, _ in calls}) != len(calls):
        raise InvalidArgument("calls: a key stands there twice")
    args = ["RL.PEEKALL" if peek else "RL.ALL"]
    for rule, key, cost in calls:
        words = _words(rule, cost, id)
        if any(" " in word or "\n" in word for word in words):
            raise InvalidArgument("id: no spaces where several rules are asked")
        args += (key, " ".join(words))
    return tuple(args)


def probe(key: str) -> Args:
    """Builds a call that every back end answers, whatever the key contains."""
    return ("RL.PEEK", key, "GCRA", "1", "1", "1", "COST", "0")


def _taken_apart(args: Args) -> tuple[str, Args, Args]:
    """Splits a command of the module into its verb, its keys and the other words."""
    verb = args[0].removeprefix("RL.")
    if verb in ("ALL", "PEEKALL"):
        return verb, args[1::2], args[2::2]
    return verb, args[1:2], args[2:]


def as_function(args: Args) -> Args:
    """Converts a call to one of the function library."""
    verb, keys, rest = _taken_apart(args)
    call = "FCALL_RO" if verb in ("PEEK", "PEEKALL") else "FCALL"
    return (call, f"rl_{verb.lower()}", str(len(keys)), *keys, *rest)


def as_script(args: Args, call: str, script: str) -> Args:
    """Converts a call to one of the script: ``EVALSHA`` with its hash or ``EVAL`` with its text."""
    verb, keys, rest = _taken_apart(args)
    return (call, script, str(len(keys)), *keys, verb, *rest)


def packed(args: Args) -> bytes:
    """Returns the bytes of a call."""
    # The driver packs any client's words of any type, which takes several times as long.
    words = [f"*{len(args)}\r\n"]
    for word in args:
        size = len(word) if word.isascii() else len(word.encode())
        words.append(f"${size}\r\n{word}\r\n")
    return "".join(words).encode()


def key_of(args: Args) -> str:
    """Returns the key that routes the call in a cluster; empty if any node can answer."""
    if args[0].startswith(("FCALL", "EVAL")):
        return args[3] if args[2] != "0" else ""
    return args[1]


def keeps_lease(args: Args) -> bool:
    """Returns True for a renewal or a release, in the form of any back end."""
    verb = args[1 if args[0] == "FCALL" else 4 if args[0].startswith("EVAL") else 0 :][:1]
    return verb in _KEEPS_LEASE


def _integers(reply: object, length: int) -> list[int]:
    if not isinstance(reply, list) or len(reply) != length:
        raise ProtocolError("the reply is no decision")
    if any(type(number) is not int for number in reply):
        raise ProtocolError("the reply is no decision")
    return reply


def decision(rule: Rule, reply: object, cost: int = 1, *, partial: bool = False) -> Decision:
    """Reads a decision: five integers, or seven under a policy."""
    if rule.kind == "policy":
        granted, limit, remaining, retry, reset, would, would_retry = _integers(reply, 7)
    else:
        granted, limit, remaining, retry, reset = _integers(reply, 5)
        would, would_retry = granted, retry
    if not 0 <= granted <= (cost if partial else 1) or remaining < 0 or retry < -1:
        raise ProtocolError("the reply is no decision")
    return Decision(
        granted > 0, limit, remaining, retry_ms(retry), reset, rule.name, "server", False,
        would > 0, retry_ms(would_retry), granted if partial else granted * cost, rule.window_us,
    )  # fmt: skip


def decision_all(calls: Sequence[tuple[Rule, int]], reply: object) -> Decision:
    """Reads the decision on several rules, each with its cost. It has a row for each rule."""
    if not isinstance(reply, list) or len(reply) != 6 + len(calls):
        raise ProtocolError("the reply is no decision")
    granted, _, _, retry, _, at = _integers(reply[:6], 6)
    if not 1 <= at <= len(calls) or granted not in (0, 1):
        raise ProtocolError("the reply is no decision")
    # A denied call takes nothing, also from the rules that would allow it.
    rows = tuple(
        decision(rule, row, cost * granted)
        for (rule, cost), row in zip(calls, reply[6:], strict=True)
    )
    retry = retry_ms(retry)
    deciding = rows[at - 1]
    return replace(
        deciding, allowed=granted == 1, retry_after_ms=retry,
        would_allow=all(row.would_allow for row in rows),
        would_retry_after_ms=retry if not granted else deciding.would_retry_after_ms, rows=rows,
        deciding=at - 1,
    )  # fmt: skip


def settled(reply: object, rule: Rule, cost: int) -> Decision:
    """Reads the reply of a charge or a refund: five integers, also under a policy."""
    granted, limit, remaining, retry, reset = _integers(reply, 5)
    return Decision(
        granted > 0, limit, remaining, retry_ms(retry), reset, rule.name, "server", False,
        granted > 0, retry_ms(retry), cost if granted > 0 else 0, rule.window_us,
    )  # fmt: skip


def held(reply: object) -> bool:
    """Reads the reply of a renewal or a release: 1, or 0 if the lease has expired."""
    if type(reply) is not int or reply not in (0, 1):
        raise ProtocolError("the reply is neither 0 nor 1")
    return reply == 1
