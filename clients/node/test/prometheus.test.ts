/** Tests the metrics of limiters in a registry of `prom-client`. */
import { type OpenMetricsContentType, Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { CommandRejectedError, fixed, gcra, lease } from '../src/index.js';
import { metrics } from '../src/prometheus.js';
import { api, over, times } from './over.js';

const exports = fixed('exports', 1, '60s');

/** Returns the samples of a metric that are not 0. */
async function series(
  registry: Pick<Registry, 'metrics'>,
  name: string,
): Promise<Record<string, number>> {
  const text = await registry.metrics();
  expect(text).not.toContain('alice');
  const lines = text.split('\n').filter((line) => line.startsWith(`redis_throttle_${name}_`));
  const samples = lines.map((line) => {
    const [, sample, value] = /^redis_throttle_(.*) (\S+)$/.exec(line) as unknown as string[];
    return [sample, Number(value)] as const;
  });
  return Object.fromEntries(samples.filter(([, value]) => value !== 0));
}

it('checks and leases are counted, and no other calls', async () => {
  const registry = new Registry();
  const { server, limiter } = over({ denialCache: 9 });
  metrics(limiter, registry);
  metrics(limiter, registry);
  await times(3, () => limiter.check(exports, 'alice'));
  await limiter.lease(lease('jobs', 4, '60s'), 'alice');
  await limiter.checkAll([api.of('alice'), exports.of('alice')]);
  await limiter.peek(api, 'alice');
  await limiter.charge(api, 'alice');
  await limiter.refund(api, 'alice');
  server.fail(new Error('WRONGTYPE of alice'));
  await expect(limiter.check(api, 'alice')).rejects.toThrow(CommandRejectedError);
  expect(await series(registry, 'checks')).toEqual({
    'checks_total{rule="exports",outcome="allowed",source="server"}': 1,
    'checks_total{rule="exports",outcome="denied",source="server"}': 2,
    'checks_total{rule="exports",outcome="denied",source="local"}': 1,
    'checks_total{rule="jobs",outcome="allowed",source="server"}': 1,
    'checks_total{rule="api",outcome="rejected",source="server"}': 1,
  });
  const latency = await series(registry, 'latency');
  expect(latency['latency_seconds_count{source="server"}']).toBe(4);
  expect(await series(registry, 'remaining')).toMatchObject({
    'remaining_ratio_count{rule="exports"}': 3,
    'remaining_ratio_bucket{le="0",rule="exports"}': 3,
    'remaining_ratio_sum{rule="jobs"}': 0.75,
    // The row of the rule that did not decide.
    'remaining_ratio_sum{rule="api"}': 1,
  });
});

it('an end without an answer is no rejection', async () => {
  const registry = new Registry();
  const { server, limiter } = over();
  metrics(limiter, registry);
  const admitted = await limiter.admit([api.of('alice'), lease('jobs', 4, '60s').of('alice')]);
  admitted.settle(api, 3);
  server.fail();
  await admitted.finish();
  await server.advance(60_000);
  expect(limiter.counters.unsettled).toBe(2);
  expect(await series(registry, 'checks')).toEqual({
    'checks_total{rule="jobs",outcome="allowed",source="server"}': 1,
  });
});

it('degraded decisions are counted by onError and reason', async () => {
  const registry = new Registry();
  const { server, limiter } = over({ breakerFailures: 4 });
  metrics(limiter, registry);
  server.fail();
  for (const onError of ['allow', 'deny', 'local'] as const) {
    await limiter.check(gcra(onError, 6, 10, '60s', { onError }), 'alice');
  }
  server.fail(new Error('OOM'));
  await times(2, () => limiter.check(api, 'alice'));
  expect(await series(registry, 'degraded')).toEqual({
    'degraded_total{rule="allow",on_error="allow",reason="connection"}': 1,
    'degraded_total{rule="deny",on_error="deny",reason="connection"}': 1,
    'degraded_total{rule="local",on_error="local",reason="connection"}': 1,
    'degraded_total{rule="api",on_error="allow",reason="server"}': 1,
    'degraded_total{rule="api",on_error="allow",reason="circuit"}': 1,
  });
  expect(await series(registry, 'remaining')).toEqual({});
});

it('the open breakers of all limiters are shown', async () => {
  const registry = new Registry();
  const both = [1, 2].map(() => over({ breakerFailures: 1, breakerPauseMs: 50 }));
  for (const { server, limiter } of both) {
    metrics(limiter, registry);
    server.fail();
    await limiter.check(api, 'alice');
  }
  expect(await series(registry, 'breaker')).toEqual({ breaker_open: 2 });
  const [{ server, limiter }] = both as [(typeof both)[0]];
  server.answer();
  await server.advance(50);
  expect(limiter.openBreakers).toBe(0);
  await limiter.check(api, 'alice');
  expect(await series(registry, 'breaker')).toEqual({ breaker_open: 1 });
});

it('rules after the hundredth share a name', async () => {
  const registry = new Registry();
  const { limiter } = over();
  metrics(limiter, registry);
  for (let at = 0; at < 206; at += 1) {
    await limiter.check(gcra(`rule-${at % 103}`, 6, 10, '60s'), 'alice');
  }
  const shown = await series(registry, 'checks');
  expect(Object.keys(shown)).toHaveLength(101);
  expect(shown).toMatchObject({
    'checks_total{rule="rule-99",outcome="allowed",source="server"}': 2,
    'checks_total{rule="(other)",outcome="allowed",source="server"}': 6,
  });
  const ratio = await series(registry, 'remaining');
  expect(ratio['remaining_ratio_count{rule="(other)"}']).toBe(6);
});

it('a registry that was cleared gets the metrics again', async () => {
  const registry: Registry<OpenMetricsContentType> = new Registry();
  const { limiter } = over();
  metrics(limiter, registry);
  registry.clear();
  metrics(limiter, registry);
  await limiter.check(api, 'alice');
  expect(Object.values(await series(registry, 'checks'))).toEqual([1]);
});
