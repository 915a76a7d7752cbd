"""Rate limits with redis-throttle: limiters, and middleware for ASGI and WSGI."""

from ._backends import Backend, BackendOption
from ._calls import Call
from ._decision import Decision, Denied, HeaderStyle, Source
from ._errors import (
    CommandRejected,
    InvalidArgument,
    Reason,
    ThrottleError,
    Unavailable,
)
from ._lease import AsyncLease, AsyncLeaseContext, Lease, LeaseContext
from ._limiter import AsyncLimiter, Limiter
from ._options import Counters, DecisionEvent, DecisionKind, LimiterOptions, OnDecision
from ._outcome import Count, Outcome
from ._rules import (
    Duration,
    OnError,
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
    "AsyncLeaseContext",
    "AsyncLimiter",
    "Backend",
    "BackendOption",
    "Call",
    "CommandRejected",
    "Count",
    "Counters",
    "Decision",
    "DecisionEvent",
    "DecisionKind",
    "Denied",
    "Duration",
    "HeaderStyle",
    "InvalidArgument",
    "Lease",
    "LeaseContext",
    "Limiter",
    "LimiterOptions",
    "OnDecision",
    "OnError",
    "Outcome",
    "Reason",
    "Rule",
    "Source",
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
