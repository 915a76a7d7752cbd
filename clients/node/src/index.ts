/** Rate limits decided by Redis or Valkey, with the module redis-throttle or its library. */
export { Admission, Reservation } from './admission.js';
export type { Backend } from './backends.js';
export type { Clock } from './clock.js';
export { Decision, type DecisionFields, DeniedError, type Source } from './decision.js';
export type { Connection, Waiting } from './drivers/connection.js';
export type { Client } from './drivers/index.js';
export type {
  IoRedisClusterLike,
  IoRedisLike,
  IoRedisOptions,
  NatMap,
} from './drivers/ioredis.js';
export type {
  NodeAddressMap,
  NodeRedisClusterLike,
  NodeRedisClusterOptions,
  NodeRedisLike,
  NodeRedisMaster,
} from './drivers/node-redis.js';
export type { Listener } from './drivers/opening.js';
export type { Address } from './drivers/slot-map.js';
export {
  ClosedError,
  CommandRejectedError,
  InvalidArgumentError,
  RateLimitError,
  UnavailableError,
  type UnavailableReason,
} from './errors.js';
export type { HeaderOptions, HeaderStyle, Problem } from './headers.js';
export { type JsonLogOptions, jsonLog } from './json-log.js';
export type { KeyOptions, Subject } from './keys.js';
export type { Lease } from './lease.js';
export { Limiter } from './limiter.js';
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
} from './options.js';
export type { Call } from './protocol.js';
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
} from './rules.js';
