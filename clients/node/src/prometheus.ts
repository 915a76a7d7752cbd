/** Metrics of limiters, with the package `prom-client`. */
import {
  Counter,
  Gauge,
  Histogram,
  type Registry,
  type RegistryContentType,
  register,
} from 'prom-client';
import type { Limiter } from './limiter.js';
import type { Decision } from './rules/decision.js';
import type { DecisionEvent } from './rules/options.js';

const RULES_MAX = 100;
const OTHER = '(other)';
const CHECKS = 'redis_throttle_checks_total';
const SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
];
const RATIOS = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1];

const known = new WeakMap<Registry<RegistryContentType>, Metrics>();

/**
 * Adds the limiter to the metrics of the registry, which it registers at the first call. Counts
 * checks and leases; charges, refunds and peeks only if the server rejects them. Of several rules
 * in one call, that of the deciding rule is counted. At most 100 rules have their own label, the
 * others together as `(other)`; keys and subjects never.
 *
 * @param registry Default: the global one of `prom-client`.
 */
export function metrics(
  limiter: Limiter,
  registry: Registry<RegistryContentType> = register,
): void {
  let entry = known.get(registry);
  // The application may have cleared the registry.
  if (entry === undefined || registry.getSingleMetric(CHECKS) === undefined) {
    entry = new Metrics(registry);
    known.set(registry, entry);
  }
  entry.add(limiter);
}

class Metrics {
  readonly #checks: Counter<'rule' | 'outcome' | 'source'>;
  readonly #degraded: Counter<'rule' | 'on_error' | 'reason'>;
  readonly #latency: Histogram<'source'>;
  readonly #ratio: Histogram<'rule'>;
  readonly #open: Gauge;
  #limiters: readonly WeakRef<Limiter>[] = [];
  readonly #rules = new Set<string>();

  constructor(registry: Registry<RegistryContentType>) {
    const registers = [registry];
    this.#checks = new Counter({
      name: CHECKS,
      help: 'Checks and leases, and rejected calls.',
      labelNames: ['rule', 'outcome', 'source'],
      registers,
    });
    this.#degraded = new Counter({
      name: 'redis_throttle_degraded_total',
      help: 'Checks that on_error decided without the server.',
      labelNames: ['rule', 'on_error', 'reason'],
      registers,
    });
    this.#latency = new Histogram({
      name: 'redis_throttle_latency_seconds',
      help: 'Time that a check took in the application.',
      labelNames: ['source'],
      buckets: SECONDS,
      registers,
    });
    this.#ratio = new Histogram({
      name: 'redis_throttle_remaining_ratio',
      help: "Units left of the limit after a server's decision.",
      labelNames: ['rule'],
      buckets: RATIOS,
      registers,
    });
    this.#open = new Gauge({
      name: 'redis_throttle_breaker_open',
      help: 'Circuit breakers open at the last decision.',
      registers,
    });
  }

  add(limiter: Limiter): void {
    const alive = this.#limiters.filter((ref) => ref.deref() !== undefined);
    if (alive.some((ref) => ref.deref() === limiter)) return;
    this.#limiters = [...alive, new WeakRef(limiter)];
    limiter.onDecision((event) => this.#record(event));
  }

  #record({ kind, rule, decision, latencyMs }: DecisionEvent): void {
    const open = this.#limiters.map((ref) => ref.deref()?.openBreakers ?? 0);
    this.#open.set(open.reduce((sum, breakers) => sum + breakers, 0));
    const name = this.#label(rule.name);
    if (kind === 'rejected') {
      this.#checks.inc({ rule: name, outcome: 'rejected', source: 'server' });
      // An end of an admission that failed has no decision.
    } else if ((kind === 'check' || kind === 'lease') && decision !== undefined) {
      this.#recordDecision(name, decision, latencyMs / 1000);
    }
  }

  #recordDecision(rule: string, decision: Decision, latencyS: number): void {
    const { allowed, banned, source, degraded, reason = '' } = decision;
    const denied = banned ? 'banned' : 'denied';
    this.#checks.inc({ rule, outcome: allowed ? 'allowed' : denied, source });
    this.#latency.observe({ source }, latencyS);
    if (degraded) {
      const other = allowed ? 'allow' : 'deny';
      this.#degraded.inc({ rule, on_error: source === 'local' ? source : other, reason });
    }
    for (const row of decision.rows.length > 0 ? decision.rows : [decision]) {
      if (row.source !== 'server' || row.limit === 0) continue;
      this.#ratio.observe({ rule: this.#label(row.rule) }, row.remaining / row.limit);
    }
  }

  /** Returns the name of the rule, or that of the others if there are enough rules. */
  #label(rule: string): string {
    if (this.#rules.size < RULES_MAX) this.#rules.add(rule);
    return this.#rules.has(rule) ? rule : OTHER;
  }
}
