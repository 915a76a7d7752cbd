/**
 * Rate limits that a Redis or Valkey server decides. {@link redisthrottle.Limiter} is the entry; a
 * {@link redisthrottle.Rule} is a limit, and a {@link redisthrottle.Decision} the result of a call.
 */
// The rooms, in order. A class uses those of its room and of the rooms before it. They are one
// package, because the internal classes use what the public ones do not show.
//
// rules: Checks, Kind, Backend, Count, OnError, HeaderStyle, CalendarUnit, Rate, Definition,
//   Algorithm, Rule, BaseRule, RuleForms and the kinds of rules, Item, CallOptions, Keys, Options,
//   Headers, Problem, Decision, Draft, Event, Counters, Errors and the exceptions
// wire: Keyed, Words, Replies, Library
// net: Connector, Connection, Clock, ManualClock, Reports, Loop, Signal, Shared, RunClock, Breaker,
//   Slots, Link, Turn, Pending, Node (also its line), SlotMap, Routes, Cluster, Backends, Exchange
// calls: Work, Entry, Events, Local, Denials, Inquiry, Fallback, Prefetcher
// holds: Ending, Hold, Guard, Lease, Admission, Reservation, Holding
// limiter: Closing, Steps, Several, LimiterBuilder, Limiter, FakeServer
// web: Address, Proxies, and the package redisthrottle.middleware
@NullMarked
package redisthrottle;

import org.jspecify.annotations.NullMarked;
