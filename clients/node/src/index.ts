/** Rate limits decided by Redis or Valkey, with the module redis-throttle or its library. */

export { type JsonLogOptions, jsonLog } from './calls/json-log.js';
export { Admission } from './holds/admission.js';
export type { Lease } from './holds/lease.js';
export { Reservation } from './holds/reservation.js';
export { Limiter } from './limiter.js';
export type { Connection } from './net/connection.js';
export type { Client } from './net/drivers.js';
export type { Listener } from './net/generations.js';
export type {
  IoRedisClusterLike,
  IoRedisLike,
  IoRedisOptions,
  NatMap,
} from './net/ioredis.js';
export type {
  NodeAddressMap,
  NodeRedisClusterLike,
  NodeRedisClusterOptions,
  NodeRedisLike,
  NodeRedisMaster,
} from './net/node-redis.js';
export type { Address } from './net/slots.js';
export type { Waiting } from './rules/aborting.js';
export type { Clock } from './rules/clock.js';
export { Decision, type DecisionFields, DeniedError, type Source } from './rules/decision.js';
export {
  ClosedError,
  CommandRejectedError,
  InvalidArgumentError,
  RateLimitError,
  UnavailableError,
  type UnavailableReason,
} from './rules/errors.js';
export {
  backoff,
  type Count,
  type Duration,
  fixed,
  gcra,
  type Item,
  type Leave,
  leakyBucket,
  lease,
  type OnError,
  policy,
  type QuotaUnit,
  quota,
  type Rate,
  type RateRule,
  type ResponseHead,
  type Rule,
  type RuleKind,
  type RuleOptions,
  rate,
  sliding,
  slidingLog,
  tokenBucket,
  type WindowRule,
} from './rules/forms.js';
export type { HeaderOptions, HeaderStyle, Problem } from './rules/headers.js';
export type { KeyOptions, Subject } from './rules/keys.js';
export type {
  AdmitOptions,
  Backend,
  CallOptions,
  CheckOptions,
  Counters,
  DecisionEvent,
  DecisionKind,
  LimiterOptions,
  OnDecision,
  PeekOptions,
  ReserveOptions,
  SeveralOptions,
  UrlOptions,
  WaitOptions,
} from './rules/options.js';
export type { Call } from './wire/words.js';
