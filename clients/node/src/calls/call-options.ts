/** Applies the options PARTIAL and LEAVE of a call to an algorithm. */
import type { Leave } from '../rules/rule.js';
import type { Algorithm, Verdict } from './verdict.js';

interface Options {
  cost?: number | undefined;
  partial?: boolean | undefined;
  leave?: Leave | undefined;
}

/** A verdict, and the units that an allowed call takes. */
export type Granted = Verdict<unknown> & { granted: number };

/** Returns the number of units that a call leaves to others. */
export function unitsOf(leave: Leave | undefined, limit: number): number {
  if (typeof leave === 'number') return leave;
  const percent = leave?.endsWith('%') ? BigInt(leave.slice(0, -1)) : undefined;
  return percent === undefined ? Number(leave ?? 0) : Number((BigInt(limit) * percent) / 100n);
}

/** Decides a call with its options. */
export function granted(
  algorithm: Algorithm,
  state: unknown,
  nowUs: bigint,
  { cost: asked = 1, partial = false, leave }: Options,
): Granted {
  if (!partial && leave === undefined) {
    return { ...algorithm.decide(state, nowUs, asked), granted: asked };
  }
  const now = algorithm.decide(state, nowUs, 0);
  const left = unitsOf(leave, now.limit);
  const cost = partial ? Math.min(asked, Math.max(1, now.remaining - left)) : asked;
  const whole = algorithm.decide(state, nowUs, cost + left);
  const verdict = whole.allowed ? algorithm.decide(state, nowUs, cost) : whole;
  return { ...verdict, granted: cost };
}
