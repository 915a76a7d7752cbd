/** Tests rules whose rate is text. The forms of the text are in the shared cases. */
import { describe, expect, it } from 'vitest';
import {
  fixed,
  gcra,
  leakyBucket,
  type Rule,
  rate,
  sliding,
  slidingLog,
  tokenBucket,
} from '../src/index.js';

const same: [string, Rule, Rule][] = [
  ['gcra', gcra('a', 6, '10/minute'), gcra('a', 6, 10, 60)],
  ['tokenBucket', tokenBucket('a', 6, '10 per 2 hours'), tokenBucket('a', 6, 10, '2h')],
  ['leakyBucket', leakyBucket('a', 6, '10/250ms'), leakyBucket('a', 6, 10, '250ms')],
  ['sliding', sliding('a', rate('10/s')), sliding('a', 10, 1)],
  ['fixed', fixed('a', '10/day', { aligned: true }), fixed('a', 10, '1d', { aligned: true })],
  ['slidingLog', slidingLog('a', '10/m', { slots: 16 }), slidingLog('a', 10, 60, { slots: 16 })],
];

describe('a rate as text', () => {
  it.each(same)('makes the same rule with %s', (_, one, other) => {
    expect(String(one)).toBe(String(other));
    expect([one.limit, one.windowMs]).toEqual([other.limit, other.windowMs]);
  });

  it('keeps the options that follow it', () => {
    expect(gcra('a', 6, '10/minute', { onError: 'deny' }).onError).toBe('deny');
  });

  it('names the quota for a month', () => {
    expect(() => fixed('a', '10/month')).toThrow('a quota counts months and years');
  });

  it.each([
    ['limit', () => fixed('a', '10' as unknown as number, '60s')],
    ['options', () => fixed('a', '10/minute' as never, undefined as never, {})],
    ['burst', () => (gcra as (...given: unknown[]) => Rule)('a', '10/minute')],
    ['rate', () => gcra('a', 6, null as never)],
  ] as [string, () => Rule][])('names the %s that is wrong', (argument, make) => {
    expect(make).toThrow(expect.objectContaining({ argument }));
  });
});
