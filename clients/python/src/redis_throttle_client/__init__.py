"""Rate limits with redis-throttle: limiters, and middleware for ASGI and WSGI."""

from ._decision import Decision
from ._errors import (
    CommandRejected,
    InvalidArgument,
    ProtocolError,
    ThrottleError,
    Unavailable,
)
from ._lease import AsyncLease, Lease, LeaseDenied
from ._limiter import AsyncLimiter, Limiter
from ._options import Counters
from ._rules import (
    Rule,
    backoff,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    policy,
    quota,
    sliding,
    sliding_log,
    token_bucket,
)

__all__ = [
    "AsyncLease",
    "AsyncLimiter",
    "CommandRejected",
    "Counters",
    "Decision",
    "InvalidArgument",
    "Lease",
    "LeaseDenied",
    "Limiter",
    "ProtocolError",
    "Rule",
    "ThrottleError",
    "Unavailable",
    "backoff",
    "fixed",
    "gcra",
    "leaky_bucket",
    "lease",
    "policy",
    "quota",
    "sliding",
    "sliding_log",
    "token_bucket",
]
