/** Tests the metrics of limiters in a registry of `prom-client`. */
import { type OpenMetricsContentType, Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { gcra } from '../src/index.js';
import { metrics } from '../src/prometheus.js';
import { api, over } from './fakes.js';

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

it('the gauge has the open breakers of all limiters', async () => {
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
  const checks = await series(registry, 'checks');
  expect(Object.keys(checks)).toHaveLength(101);
  expect(checks).toMatchObject({
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
