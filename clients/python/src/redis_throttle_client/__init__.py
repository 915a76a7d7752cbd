"""Rate limits with redis-throttle: limiters, and middleware for ASGI and WSGI."""

from ._admission import (
    Admission,
    AsyncAdmission,
    AsyncAdmissionContext,
    AsyncReservation,
    Reservation,
)
from ._async_limiter import AsyncLimiter
from ._backends import Backend, BackendOption
from ._decision import Decision, Denied, HeaderStyle, Source
from ._durations import Duration
from ._errors import (
    CommandRejected,
    InvalidArgument,
    LimiterClosed,
    Reason,
    ThrottleError,
    Unavailable,
)
from ._json_log import json_log
from ._key_of import HeaderKey, key_of
from ._lease import AsyncLease, AsyncLeaseContext, Lease, LeaseContext
from ._limiter import Limiter
from ._options import Counters, DecisionEvent, DecisionKind, LimiterOptions, OnDecision
from ._outcome import Count, Outcome
from ._rate import Rate, rate
from ._rules import (
    Item,
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
    "Admission",
    "AsyncAdmission",
    "AsyncAdmissionContext",
    "AsyncLease",
    "AsyncLeaseContext",
    "AsyncLimiter",
    "AsyncReservation",
    "Backend",
    "BackendOption",
    "CommandRejected",
    "Count",
    "Counters",
    "Decision",
    "DecisionEvent",
    "DecisionKind",
    "Denied",
    "Duration",
    "HeaderKey",
    "HeaderStyle",
    "InvalidArgument",
    "Item",
    "Lease",
    "LeaseContext",
    "Limiter",
    "LimiterClosed",
    "LimiterOptions",
    "OnDecision",
    "OnError",
    "Outcome",
    "Rate",
    "Reason",
    "Reservation",
    "Rule",
    "Source",
    "ThrottleError",
    "Unavailable",
    "backoff",
    "fixed",
    "gcra",
    "json_log",
    "key_of",
    "leaky_bucket",
    "lease",
    "policy",
    "quota",
    "rate",
    "sliding",
    "sliding_log",
    "token_bucket",
]
