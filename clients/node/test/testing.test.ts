/** Tests what the fake server does not compute: scripted replies, and the error without one. */
import { expect, it } from 'vitest';
import { CommandRejectedError, fixed, gcra, lease, policy, quota } from '../src/index.js';
import { GRANTED, over } from './fakes.js';

it.each([
  ['a lease', lease('jobs', 1, '60s').of('7')],
  ['a quota', quota('month', 9, 'month').of('7')],
  ['a reservation', fixed('day', 9, '1d').of('7').reserve(2)],
  ['a policy without a rule', policy('search').of('7')],
])('a command of %s needs a reply', async (_, item) => {
  const { server, limiter } = over();
  const admitted = limiter.admit([item]);
  await expect(admitted).rejects.toThrow(/does not compute .*: queue a reply .*lab serve/);
  await expect(admitted).rejects.toBeInstanceOf(CommandRejectedError);
  const row = item.rule.kind === 'policy' ? [...GRANTED, 1, 0] : GRANTED;
  server.script([...GRANTED, 1, row], new Error('READONLY no'));
  expect((await limiter.checkAll([item], { id: 'a' })).source).toBe('server');
  expect((await limiter.checkAll([item], { id: 'b' })).reason).toBe('server');
});

it('replies in the order of the script, and computes other commands', async () => {
  const { server, limiter } = over();
  server.script(GRANTED, 1);
  const held = await limiter.lease(lease('jobs', 1, '60s'), '7');
  expect((await limiter.check(gcra('api', 6, 10, '60s'), '7')).remaining).toBe(5);
  expect(await held.renew()).toBe(true);
});

it('decides by the policies of the server, or by the default', async () => {
  const { server, limiter } = over();
  const search = policy('search', { default: fixed('default', 1, '60s') });
  expect(await limiter.check(search, '7')).toMatchObject({ limit: 1, wouldAllow: true });
  server.policies.set('search', fixed('stored', 9, '60s'));
  expect((await limiter.check(search, '8')).limit).toBe(9);
});
