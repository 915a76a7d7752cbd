"""Rate limits with redis-throttle: limiters, and middleware for ASGI and WSGI."""

from ._calls.json_log import json_log
from ._holds.admission import (
    Admission,
    AsyncAdmission,
    AsyncAdmissionContext,
)
from ._holds.lease import AsyncLease, AsyncLeaseContext, Lease, LeaseContext
from ._holds.reservation import AsyncReservation, Reservation
from ._limiter import Limiter
from ._limiter_async import AsyncLimiter
from ._rules.decision import Decision, Denied, Source
from ._rules.durations import Duration
from ._rules.errors import (
    CommandRejected,
    InvalidArgument,
    LimiterClosed,
    Reason,
    ThrottleError,
    Unavailable,
)
from ._rules.event import Counters, DecisionEvent, DecisionKind, OnDecision
from ._rules.headers import HeaderStyle
from ._rules.options import Backend, BackendOption, LimiterOptions
from ._rules.outcome import Count, Outcome
from ._rules.rate import Rate, rate
from ._rules.rule import (
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
from ._web.key_of import HeaderKey, key_of

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
