/** Rate limits decided by Redis or Valkey, with the module redis-throttle or its library. */

export { type JsonLogOptions, jsonLog } from './calls/json-log.js';
export { Admission, Reservation } from './holds/admission.js';
export type { Lease } from './holds/lease.js';
export { Limiter } from './limiter.js';
export type { Connection, Waiting } from './net/connection.js';
export type { Client } from './net/drivers.js';
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
export type { Listener } from './net/opening.js';
export type { Address } from './net/slot-map.js';
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
export type { Backend } from './wire/backends.js';
export type { Call } from './wire/words.js';
