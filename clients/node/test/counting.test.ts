/** Tests the rules that count only some responses. */
import { expect, it } from 'vitest';
import { gcra, lease } from '../src/index.js';

it('a rule rejects a count that it cannot have', () => {
  expect(gcra('api', 6, 10, '60s').count).toBe('all');
  const unknown = { count: 'success' as never };
  expect(() => gcra('api', 6, 10, '60s', unknown)).toThrow(/^invalid count: expected all, fail/);
  expect(() => lease('one', 1, '60s', { count: 'failures' })).toThrow(
    /^invalid count: expected all/,
  );
});
