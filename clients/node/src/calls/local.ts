/** The local limiter: decides in this process, without the server, if `onError` is `local`. */
import type { Clock } from '../rules/clock.js';
import { Decision, orNever } from '../rules/decision.js';
import { type Leave, type Rule, unitsOf } from '../rules/rule.js';
import { type Algorithm, algorithmOf, type Verdict } from './algorithms.js';

/** The maximum number of keys in the local limiter. */
const SUBJECTS_MAX = 10_000;

/** The largest limit of a sliding log that has an entry for each call. */
const ENTRIES_MAX = 1000;

/** A rule, its key, and the units that a call takes. */
export interface LocalRequest {
  rule: Rule;
  key: string;
  /** True for the whole limit, in place of this process's share. */
  isWhole?: boolean | undefined;
  cost?: number | undefined;
  partial?: boolean | undefined;
  leave?: Leave | undefined;
}

/**
 * Returns the key of a state. A changed rule of the same name has another key, so it starts without
 * usage.
 */
function keyOf({ rule: { words }, key, isWhole }: Pick<LocalRequest, 'rule' | 'key' | 'isWhole'>) {
  return `${isWhole ? 'whole' : 'share'} ${words.join(' ')} ${key}`;
}

/** Returns this process's share of the units that a call leaves. A percentage is of the share. */
function shareOf(leave: Leave | undefined, share: number): Leave | undefined {
  return typeof leave === 'number' ? Math.ceil(leave * share) : leave;
}

/** Decides a call with the options PARTIAL and LEAVE. */
function granted(
  algorithm: Algorithm,
  state: unknown,
  nowUs: bigint,
  { cost: wanted = 1, partial = false, leave }: Pick<LocalRequest, 'cost' | 'partial' | 'leave'>,
): Verdict<unknown> & { granted: number } {
  if (!partial && leave === undefined) {
    return { ...algorithm.decide(state, nowUs, wanted), granted: wanted };
  }
  const now = algorithm.decide(state, nowUs, 0);
  const left = unitsOf(leave, now.limit);
  const cost = partial ? Math.min(wanted, Math.max(1, now.remaining - left)) : wanted;
  const whole = algorithm.decide(state, nowUs, cost + left);
  const verdict = whole.allowed ? algorithm.decide(state, nowUs, cost) : whole;
  return { ...verdict, granted: cost };
}

/** The local limiter, for rules whose `onError` is `local`, and for the fake server. */
export class LocalLimiter {
  readonly #algorithms = new WeakMap<Rule, Algorithm>();
  /** The algorithms of the whole limits. */
  readonly #whole = new WeakMap<Rule, Algorithm>();
  /** The keys that have units left, the least recently used first. */
  readonly #states = new Map<string, unknown>();
  /** The others, which are dropped last, because dropping one resets its limit. */
  readonly #exhausted = new Map<string, { state: unknown; freeAtUs: bigint }>();

  /** @param stateKey Returns the name of the state of a rule and key. */
  constructor(
    private readonly clock: Clock,
    private readonly stateKey: (
      request: Pick<LocalRequest, 'rule' | 'key' | 'isWhole'>,
    ) => string = keyOf,
  ) {}

  get #nowUs(): bigint {
    return BigInt(Math.floor(this.clock.nowMs() * 1000));
  }

  /**
   * Takes from all rules or from none.
   *
   * @param mode `peek` takes nothing. Nor does `deny`: another rule denies the call.
   * @returns The decisions. If the call is denied, those that allow it show what is there.
   */
  decide(
    requests: readonly LocalRequest[],
    error: Error | undefined,
    mode: 'take' | 'peek' | 'deny',
  ): Decision[] {
    const rows = this.#decide(requests, error, mode === 'take');
    if (mode !== 'deny' && rows.every(({ allowed }) => allowed)) return rows;
    const untouched = requests.map((request) => ({
      ...request,
      cost: 0,
      partial: false,
      leave: 0,
    }));
    const there = this.#decide(untouched, error, false);
    return rows.map((row, at) => (row.allowed ? (there[at] as Decision) : row));
  }

  #decide(requests: readonly LocalRequest[], error: Error | undefined, takes: boolean): Decision[] {
    const nowUs = this.#nowUs;
    const verdicts = requests.map((request) => {
      const share = request.isWhole ? 1 : request.rule.localShare;
      const options = { ...request, leave: shareOf(request.leave, share) };
      return granted(this.#algorithm(request), this.#stateOf(request), nowUs, options);
    });
    const allowed = verdicts.every((verdict) => verdict.allowed);
    return verdicts.map(({ state, ...verdict }, at) => {
      const request = requests[at] as LocalRequest;
      const { rule, cost = 1, leave } = request;
      if (allowed && takes && state !== undefined) this.#keep(request, state, nowUs);
      const taken = verdict.allowed ? verdict.granted : 0;
      // A cost above the local share may still be within the rule's limit. Such a call may be
      // allowed when the server is back, so it has a retry time.
      const { limit } = rule.fallback ?? rule;
      const passes = verdict.retryAfterMs < 0 && cost + unitsOf(leave, limit) <= limit;
      const waitMs = passes ? Math.max(1000, verdict.resetAfterMs) : verdict.retryAfterMs;
      const retryAfterMs = orNever(waitMs);
      const source = 'local';
      return new Decision({ ...verdict, granted: taken, retryAfterMs, rule, source, error });
    });
  }

  /**
   * Begins the state of a key whose denial is over: a bucket is full again at an instant, or later
   * if the key has used more here. A window goes on. So no denial gives a key a second allowance.
   */
  begin(request: LocalRequest, fullAtMs: number): void {
    const algorithm = this.#algorithm(request);
    const nowUs = this.#nowUs;
    const resetUs = BigInt(Math.floor(fullAtMs * 1000)) - nowUs;
    const state = algorithm.until(resetUs, nowUs);
    if (state === undefined) return;
    const resetMs = (of: unknown) => algorithm.decide(of, nowUs, 0).resetAfterMs;
    if (resetMs(this.#stateOf(request)) < resetMs(state)) this.#keep(request, state, nowUs);
  }

  /** Takes units even if fewer are left. Cost 0 only reports the debt. */
  charge(request: LocalRequest): Decision {
    const nowUs = this.#nowUs;
    const { cost = 1, rule } = request;
    const { state, ...verdict } = this.#algorithm(request).charge(
      this.#stateOf(request),
      nowUs,
      cost,
    );
    if (cost > 0) this.#keep(request, state, nowUs);
    return new Decision({ ...verdict, rule });
  }

  /** Gives units back. */
  refund(request: LocalRequest): void {
    const nowUs = this.#nowUs;
    const state = this.#stateOf(request);
    if (state === undefined) return;
    const left = this.#algorithm(request).refund(state, nowUs, request.cost ?? 1);
    this.#keep(request, left, nowUs);
  }

  /**
   * Forgets what was counted for a key, by this process's share and by the whole limit. Returns
   * true if there was something.
   */
  forget(request: Pick<LocalRequest, 'rule' | 'key'>): boolean {
    const names = [false, true].map((isWhole) => this.stateKey({ ...request, isWhole }));
    const gone = names.map((name) => this.#states.delete(name) || this.#exhausted.delete(name));
    return gone.includes(true);
  }

  #algorithm({ rule, isWhole }: LocalRequest): Algorithm {
    const known = isWhole ? this.#whole : this.#algorithms;
    let algorithm = known.get(rule);
    if (algorithm === undefined) {
      algorithm = algorithmOf(rule, isWhole ? 1 : rule.localShare, ENTRIES_MAX);
      known.set(rule, algorithm);
    }
    return algorithm;
  }

  #stateOf(request: LocalRequest): unknown {
    const stored = this.stateKey(request);
    return this.#states.get(stored) ?? this.#exhausted.get(stored)?.state;
  }

  #keep(request: LocalRequest, state: unknown, nowUs: bigint): void {
    const stored = this.stateKey(request);
    this.#states.delete(stored);
    this.#exhausted.delete(stored);
    if (state === undefined) return;
    const { allowed, retryAfterMs } = this.#algorithm(request).decide(state, nowUs, 1);
    if (allowed) this.#states.set(stored, state);
    else {
      const freeAtUs = nowUs + BigInt(retryAfterMs) * 1000n;
      this.#exhausted.set(stored, { state, freeAtUs });
    }
    if (this.#states.size + this.#exhausted.size > SUBJECTS_MAX) this.#drop(nowUs);
  }

  /**
   * Drops a key that has units left, if there is one. If most keys have none, drops one of these:
   * else no other key would be kept.
   */
  #drop(nowUs: bigint): void {
    const [oldest] = this.#exhausted.values();
    const hasUnits = oldest !== undefined && oldest.freeAtUs <= nowUs;
    const isCrowded = this.#exhausted.size > SUBJECTS_MAX / 2;
    const fromExhausted = hasUnits || isCrowded || this.#states.size === 0;
    const from = fromExhausted ? this.#exhausted : this.#states;
    from.delete(from.keys().next().value as string);
  }
}
