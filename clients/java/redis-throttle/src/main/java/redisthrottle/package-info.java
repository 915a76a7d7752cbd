/**
 * Rate limits that a Redis or Valkey server decides. {@link redisthrottle.Limiter} is the entry; a
 * {@link redisthrottle.Rule} is a limit, and a {@link redisthrottle.Decision} the result of a call.
 */
// The rooms, in order. A class uses those of its room and of the rooms before it. They are one
// package, because the internal classes use what the public ones do not show.
//
// rules: Checks, Kind, Backend, Count, OnError, HeaderStyle, CalendarUnit, Source, Reason, Rate,
//   Algorithm, Definition, RuleForms, Rule, FixedRule, SlidingLogRule, QuotaRule, PolicyRule,
//   Item, CallOptions, Keys, Options, Headers, Problem, Decision, Draft, Event, Counters,
//   Errors, CallInterruptedException, CommandRejectedException, DeniedException,
//   InvalidArgumentException, NotSentException, ServerErrorException, UnavailableException
// wire: Keyed, Words, Replies, Library
// net: Connector, Connection, Clock, ManualClock, Reports, Loop, Signal, Shared, RunClock,
//   Breaker, Slots, Link, Turn, Pending, Node, SlotMap, Routes, Cluster, Backends, Exchange
// calls: Work, Entry, Events, Local, Denials, Inquiry, Fallback, Prefetcher
// holds: Ending, Hold, Guard, Lease, Admission, Reservation, Holding
// limiter: Closing, Steps, Several, LimiterBuilder, Limiter, FakeServer
// web: Address, Proxies, redisthrottle.middleware
@NullMarked
package redisthrottle;

import org.jspecify.annotations.NullMarked;
