"""Builds the commands that calls send. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from .._rules.durations import Duration, duration_text, duration_us
from .._rules.errors import CommandRejected, InvalidArgument
from .._rules.rule import Item, Rule

Args = tuple[str, ...]
Settling = Literal["refund", "charge", "commit", "cancel"]
MOST_RULES = 16
_OF_SEVERAL = ("RL.ALL", "RL.PEEKALL")
_MOST_ID_BYTES = 128
_MOST_RESERVATION_ID_BYTES = 64


class Keyed(NamedTuple):
    """An item and its key."""

    item: Item
    key: str


def checked_id(id: str, most: int = _MOST_ID_BYTES) -> str:
    """Validates the name of a holder: 1 to 128 bytes."""
    try:
        if isinstance(id, str) and 1 <= len(id.encode()) <= most:
            return id
    except UnicodeEncodeError:
        # Half a surrogate pair.
        pass
    raise InvalidArgument(f"id: expected text of 1 to {most} bytes")


def checked_admission_id(id: str) -> str:
    """Validates the name of an admission, or of another call of several rules: 1 to 64 bytes."""
    if not isinstance(id, str) or " " in id or "\n" in id:
        raise InvalidArgument("id: expected no spaces in a call of several rules")
    return checked_id(id, _MOST_RESERVATION_ID_BYTES)


def _words(item: Item, *, partial: bool = False, leave: bool = True) -> Args:
    """Returns the words of a rule that follow its key, except those of a lease."""
    taken: Args = ()
    if item.units != 1 or partial:
        taken = ("COST", str(item.units))
    if partial:
        if not item.rule.takes_cost or not item.units:
            raise InvalidArgument(f"partial: expected a cost, for the rule {item.rule.name}")
        taken += ("PARTIAL",)
    if item.leaves is not None and leave:
        taken += ("LEAVE", item.leaves)
    return _with(item.rule, taken)


def _with(rule: Rule, taken: Args) -> Args:
    """Returns the words of a rule, with those of one call at their place."""
    if rule.kind == "quota":
        return rule.words + rule.options + taken
    return rule.words + taken + rule.options


def _no_lease(rule: Rule) -> None:
    if rule.kind == "lease":
        raise InvalidArgument("rule: a lease is taken with lease()")


def check(item: Item, key: str, *, partial: bool = False) -> Args:
    """Builds a call that decides and takes the cost."""
    _no_lease(item.rule)
    words = _words(item, partial=partial)
    return ("RL." + words[0], key, *words[1:])


def named(verb: str, item: Item, key: str) -> Args:
    """Builds a ``PEEK``, ``REFUND`` or ``CHARGE``."""
    _no_lease(item.rule)
    return ("RL." + verb, key, *_words(item, leave=verb == "PEEK"))


def reserve(item: Item, key: str, id: str) -> Args:
    """Builds a call that renews a reservation, also if less is left to others than its LEAVE."""
    return ("RL.RESERVE", key, *_reservation(item, id, leave=False))


def _reservation(item: Item, id: str, *, leave: bool = True) -> Args:
    words = _words(item, leave=leave)
    return (checked_admission_id(id), duration_text(item.ttl_us or 0), *words)


def commit(item: Item, key: str, id: str, units: int) -> Args:
    """Builds a call that uses ``units`` and ends a reservation."""
    # Without a cost the server would use the reserved amount.
    words = _with(item.rule, ("COST", str(units)))
    return ("RL.COMMIT", key, id, *words)


def cancel(item: Item, key: str, id: str) -> Args:
    """Builds a call that ends a reservation and uses nothing."""
    return ("RL.CANCEL", key, id, *_with(item.rule, ()))


def block(key: str, duration: Duration) -> Args:
    """Builds a call that bans a key."""
    return ("RL.BLOCK", key, duration_text(duration_us(duration, "duration")))


def forget(key: str) -> Args:
    """Builds a call that resets a key."""
    return ("DEL", key)


def lease(item: Item, key: str, id: str) -> Args:
    """Builds a call that takes a permit, or renews it for the same holder."""
    if item.rule.kind != "lease":
        raise InvalidArgument("rule: expected a lease")
    return ("RL.LEASE", key, *_permit(item, id))


def _permit(item: Item, id: str) -> Args:
    taken = () if item.leaves is None else ("LEAVE", item.leaves)
    return (checked_id(id), *item.rule.words[1:], *taken)


def renew(rule: Rule, key: str, id: str) -> Args:
    """Builds a call that renews a permit for another ttl."""
    return ("RL.RENEW", key, checked_id(id), rule.words[2])


def release(key: str, id: str) -> Args:
    """Builds a call that releases a permit."""
    return ("RL.RELEASE", key, checked_id(id))


def check_all(items: Sequence[Keyed], *, peek: bool = False, id: str | None = None) -> Args:
    """Builds a call of several rules. ``id`` is the holder of its leases and reservations."""
    if not 1 <= len(items) <= MOST_RULES:
        raise InvalidArgument(f"items: expected 1 to {MOST_RULES}")
    if len({key for _, key in items}) != len(items):
        raise InvalidArgument("items: a key stands there twice")
    args = ["RL.PEEKALL" if peek else "RL.ALL"]
    for item, key in items:
        args += (key, " ".join(_row(item, id)))
    return tuple(args)


def _row(item: Item, id: str | None) -> Args:
    """Returns the words of an item in a call of several rules."""
    reserves = item.ttl_us is not None
    if not reserves and item.rule.kind != "lease":
        return _words(item)
    if id is None:
        raise InvalidArgument(f"id: expected a holder for the rule {item.rule.name}")
    if reserves:
        return ("RESERVE", *_reservation(item, id))
    if not isinstance(id, str) or " " in id or "\n" in id:
        raise InvalidArgument("id: expected no spaces in a call of several rules")
    return ("LEASE", *_permit(item, id))


def probe(key: str) -> Args:
    """Builds a call that every back end decides, whatever the key contains."""
    return ("RL.PEEK", key, "GCRA", "1", "1", "1", "COST", "0")


def _taken_apart(args: Args) -> tuple[str, Args, Args]:
    """Splits a command of the module into its verb, its keys and the other words."""
    verb = args[0].removeprefix("RL.")
    if verb in ("ALL", "PEEKALL"):
        return verb, args[1::2], args[2::2]
    return verb, args[1:2], args[2:]


def without_policies(args: Args) -> Args:
    """Returns a call with the defaults of its policies, for a back end without policies."""
    verb = args[0].removeprefix("RL.")
    if verb == "USE":
        words = default_of(args[2:])
        return ("RL." + words[0], args[1], *words[1:])
    if verb in ("PEEK", "CHARGE", "REFUND") and args[2] == "USE":
        return (*args[:2], *default_of(args[3:]))
    if verb in ("ALL", "PEEKALL"):
        rows = [row.split(" ") for row in args[2::2]]
        words_of = [" ".join(default_of(row[1:]) if row[0] == "USE" else row) for row in rows]
        pairs = zip(args[1::2], words_of, strict=True)
        return (args[0], *(word for pair in pairs for word in pair))
    return args


def default_of(words: Sequence[str]) -> Args:
    """Returns the default of a policy, with the cost of the call, from the words after ``USE``."""
    at, taken = 1, list[str]()
    while at < len(words) and words[at] != "DEFAULT":
        size = 1 if words[at] == "PARTIAL" else 2
        if words[at] != "FOR":
            taken += words[at : at + size]
        at += size
    default = words[at + 1 :]
    if not default:
        raise CommandRejected(
            f"the policy {words[0]} needs the redis-throttle module, or a default"
        )
    # The words of one call precede the options of the default rule.
    named = (word in ("ALIGNED", "SLOTS") for word in default)
    end = next((at for at, found in enumerate(named) if found), len(default))
    return (*default[:end], *taken, *default[end:])


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
    """Returns the bytes of a call. What precedes and follows the key of a rule is packed once."""
    if not args[0].startswith("RL.") or args[0] in _OF_SEVERAL:
        return _packed(args, len(args))
    before, after = _around(args[0], args[2:])
    key = args[1].encode()
    return b"%b$%d\r\n%b\r\n%b" % (before, len(key), key, after)


@lru_cache(maxsize=1000)
def _around(command: str, words: Args) -> tuple[bytes, bytes]:
    return _packed((command,), len(words) + 2), _packed(words, 0)


def _packed(words: Args, size: int) -> bytes:
    # The driver packs any client's words of any type, which takes several times as long.
    head = f"*{size}\r\n" if size else ""
    text = "".join([head, *[f"${len(word)}\r\n{word}\r\n" for word in words]])
    if not text.isascii():
        text = "".join([head, *[f"${len(word.encode())}\r\n{word}\r\n" for word in words]])
    return text.encode()


def key_of(args: Args) -> str:
    """Returns the key that routes the call in a cluster; empty if any node can reply."""
    if args[0].startswith(("FCALL", "EVAL")):
        return args[3] if args[2] != "0" else ""
    return args[1]
