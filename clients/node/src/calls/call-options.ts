/** Applies the options PARTIAL and LEAVE of a call to an algorithm. */
import { type Leave, unitsOf } from '../rules/rule.js';
import type { Algorithm, Verdict } from './algorithms.js';

interface Options {
  cost?: number | undefined;
  partial?: boolean | undefined;
  leave?: Leave | undefined;
}

/** A verdict, and the units that an allowed call takes. */
export type Granted = Verdict<unknown> & { granted: number };

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
