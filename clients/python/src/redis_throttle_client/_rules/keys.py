"""Keys: ``prefix:rule:subject``, encoded so that no two subjects share a key.

``%``, ``:``, ``{``, ``}``, space and control characters of a subject are percent-encoded. An
encoded subject longer than 128 bytes is replaced by a colon and a hash. With a secret, every
subject is replaced in this way. No other encoded subject begins with a colon. Lone surrogates,
which JSON can contain, are rejected.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import lru_cache
from typing import Literal

from .errors import InvalidArgument

MAX_NUMBER = 2**53 - 1
_ENCODED = re.compile("[%:{} \x00-\x1f\x7f]")
_UNSAFE = re.compile("[{} \x00-\x1f\x7f\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_MOST_BYTES = 128
_KNOWN = 4096
_RANDOM = secrets.token_bytes(32)


def _encode(match: re.Match[str]) -> str:
    return f"%{ord(match.group()):02X}"


def subject_text(subject: object) -> str:
    """Returns a subject as text. A number and its digits are one subject."""
    if isinstance(subject, str):
        return subject
    # A bool is no number, and 2^53 is the first whole number that JSON cannot carry safely.
    is_number = isinstance(subject, int) and not isinstance(subject, bool)
    if is_number and 0 <= subject <= MAX_NUMBER:  # type: ignore[operator]
        return str(int(subject))  # type: ignore[call-overload]
    raise InvalidArgument(
        "subject: expected text that is not empty, or a whole number from 0 to 2^53 - 1"
    )


def is_subject(subject: object) -> bool:
    """Returns True for a subject that has a key. Others may come from the body of a request."""
    try:
        text = subject_text(subject)
    except InvalidArgument:
        return False
    return bool(text) and not _HALF.search(text)


class Keys:
    """Builds the keys of one limiter."""

    def __init__(
        self, *, prefix: str = "rl", hash_tag: Literal["subject"] | None = None,
        hmac_secret: bytes | str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(prefix, str) or _UNSAFE.search(prefix):
            raise InvalidArgument("prefix: expected text without braces, spaces or controls")
        if hash_tag not in (None, "subject"):
            raise InvalidArgument("hash_tag: expected 'subject' or None")
        secret = hmac_secret
        if isinstance(secret, str) and not _HALF.search(secret):
            secret = secret.encode()
        if secret is not None and (not isinstance(secret, bytes) or len(secret) < 16):
            raise InvalidArgument("hmac_secret: expected at least 16 bytes, or text of that length")
        self._prefix = prefix + ":" if prefix else ""
        self._by_subject = hash_tag == "subject"
        self._secret = secret
        # The cached keys of frequent subjects, so that each is hashed or encoded once.
        self._known = lru_cache(maxsize=_KNOWN)(self._key)

    def key(self, rule: str, subject: str | int, tag: str | None = None) -> str:
        """Returns the key of a subject under a rule. ``tag`` is its hash tag in a cluster."""
        if not isinstance(subject, str):
            subject = subject_text(subject)
        # Do not cache long texts, because a client may choose their length.
        if len(subject) <= _MOST_BYTES and (
            tag is None or (isinstance(tag, str) and len(tag) <= _MOST_BYTES)
        ):
            return self._known(rule, subject, tag)
        return self._key(rule, subject, tag)

    def _key(self, rule: str, subject: str, tag: str | None) -> str:
        part = self.encode(subject, "subject")
        if ":" in rule:
            rule = rule.replace(":", "%3A")
        if tag is not None:
            return f"{self._prefix}{{{self.encode(tag, 'tag')}}}:{rule}:{part}"
        if self._by_subject:
            part = f"{{{part}}}"
        return f"{self._prefix}{rule}:{part}"

    def encode(self, text: str, name: str = "subject") -> str:
        """Returns a subject or a tag in the form that it has in a key."""
        if not isinstance(text, str) or not text:
            raise InvalidArgument(f"{name}: expected text that is not empty")
        if _HALF.search(text):
            raise InvalidArgument(f"{name}: expected text without half a surrogate pair")
        if self._secret is not None:
            return ":" + hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
        encoded = _ENCODED.sub(_encode, text)
        if len(encoded) <= 32 or len(encoded.encode()) <= _MOST_BYTES:
            return encoded
        return ":" + hashlib.sha256(text.encode()).hexdigest()

    def key_hash(self, subject: str | int) -> str:
        """Returns 16 hexadecimal digits of the subject's HMAC.

        Without ``hmac_secret`` its key is a random one of this process: a plain hash of an address
        could be reversed.
        """
        secret = self._secret or _RANDOM
        return hmac.new(secret, str(subject).encode(), hashlib.sha256).hexdigest()[:16]
