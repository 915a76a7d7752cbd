/** Rate limits that Redis or Valkey decides, through the module redis-throttle. */
export type { Backend } from './backends.js';
export type { Clock } from './clock.js';
export type {
  Client,
  Connection,
  IoRedisClusterLike,
  IoRedisLike,
  NodeRedisClusterLike,
  NodeRedisLike,
  Waiting,
} from './connection.js';
export { Decision, type DecisionFields, type Source } from './decision.js';
export {
  ArgumentError,
  MistakeError,
  RateLimitError,
  UnavailableError,
  type UnavailableReason,
} from './errors.js';
export type { HeaderOptions, HeaderStyle, Problem } from './headers.js';
export type { KeyOptions } from './keys.js';
export { Lease } from './lease.js';
export {
  type CallOptions,
  type CheckOptions,
  type Counters,
  Limiter,
  type LimiterOptions,
  type OnDecision,
  type RuleCall,
  type SeveralOptions,
  type WaitOptions,
} from './limiter.js';
export type { Call } from './protocol.js';
export {
  backoff,
  type Duration,
  fixed,
  gcra,
  leakyBucket,
  lease,
  type OnError,
  policy,
  type QuotaUnit,
  quota,
  type Rule,
  type RuleKind,
  type RuleOptions,
  sliding,
  slidingLog,
  tokenBucket,
} from './rules.js';
