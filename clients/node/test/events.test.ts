/** Runs the shared cases of events: the hook, the JSON log, metrics and spans. */
import { PassThrough } from 'node:stream';
import { context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider, type Span } from '@opentelemetry/sdk-trace-base';
import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { fieldsOf } from '../src/calls/events.js';
import { type DecisionEvent, jsonLog } from '../src/index.js';
import { setSpanAttributes } from '../src/opentelemetry.js';
import { metrics } from '../src/prometheus.js';
import { drivers } from './scripted.js';
import { type Any, table } from './shared-cases.js';
import { Runner } from './timeline-runner.js';

beforeAll(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());
afterEach(() => {
  vi.restoreAllMocks();
});

/** Returns fields without the hash and the times, which are not compared. */
function compared({ key_hash, time_ms, latency_ms, ...fields }: Any): Any {
  expect(key_hash).toMatch(/^[0-9a-f]{16}$/);
  return fields;
}

/** Returns the samples that are not 0, in any order, without the buckets. */
async function samples(registry: Registry): Promise<unknown[]> {
  const all = (await registry.getMetricsAsJSON()).flatMap(({ name, values }) =>
    values.map(({ metricName = name, labels, value }: Any) => [metricName, labels, value]),
  );
  return all
    .map(([name, ...rest]) => [name.replace(/^redis_throttle_/, ''), ...rest])
    .filter(([name, , value]) => value !== 0 && !/_bucket$|^latency_seconds_sum$/.test(name));
}

it.each(table.events as Any[])('$name', async ({ expect: wanted, steps, ...rest }) => {
  const timeline = { ...rest, steps: steps.map((step: Any) => ({ at: 0, ...step })) };
  const runner = new Runner(timeline, drivers['node-redis 6']);
  const events: DecisionEvent[] = [];
  const log = new PassThrough();
  const registry = new Registry();
  const span = new BasicTracerProvider().getTracer('test').startSpan('request') as Span;
  await context.with(trace.setSpan(context.active(), span), () =>
    runner.run(
      (limiter) => {
        limiter.onDecision((event) => events.push(event));
        limiter.onDecision(jsonLog(log, { clock: runner.clock }));
        limiter.onDecision(setSpanAttributes);
        for (let call = 0; call < 2; call += 1) metrics(limiter, registry);
      },
      async (limiter) => {
        expect(events.map((event) => compared(fieldsOf(event)))).toEqual(wanted.events);
        for (const { latencyMs, decision, degraded } of events) {
          expect([latencyMs, degraded]).toEqual([0, decision?.degraded ?? false]);
        }
        const text = String(log.read() ?? '');
        const lines = text.split('\n').slice(0, -1);
        const logged = wanted.logged.map((at: number) => wanted.events[at]);
        expect(lines.map((line) => compared(JSON.parse(line)))).toEqual(logged);
        expect(limiter.counters).toMatchObject(wanted.counters);
        const reported = await samples(registry);
        expect(reported).toHaveLength(wanted.metrics.length);
        expect(reported).toEqual(expect.arrayContaining(wanted.metrics));
        const traced = wanted.events.filter(({ kind }: Any) => /check|lease|rejected/.test(kind));
        const attributes = Object.entries(span.attributes).map(
          ([name, value]) => [name.replace(/^redis_throttle\./, ''), value] as const,
        );
        if (traced.length === 0) expect(attributes).toEqual([]);
        else {
          const found = compared(Object.fromEntries(attributes));
          expect(found).toEqual(Object.assign({}, ...traced));
        }
        const all = [text, await registry.metrics(), JSON.stringify(attributes)].join();
        expect(all).not.toContain('alice');
      },
    ),
  );
});
