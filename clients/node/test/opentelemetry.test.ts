/** Tests the attributes of spans, with the SDK of OpenTelemetry. */
import { context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { CommandRejectedError, fixed } from '../src/index.js';
import { setSpanAttributes } from '../src/opentelemetry.js';
import { api, over } from './over.js';

const exports = fixed('exports', 1, '60s');
const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });

beforeAll(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());

/** Makes calls in a span, and returns the attributes of the span without the prefix. */
async function traced(calls: () => Promise<unknown>): Promise<Record<string, unknown>> {
  exporter.reset();
  const span = provider.getTracer('test').startSpan('request');
  await context.with(trace.setSpan(context.active(), span), calls);
  span.end();
  const attributes = Object.entries(exporter.getFinishedSpans()[0]?.attributes ?? {});
  expect(JSON.stringify(attributes)).not.toContain('alice');
  expect(attributes.every(([name]) => name.startsWith('redis_throttle.'))).toBe(true);
  return Object.fromEntries(attributes.map(([name, value]) => [name.split('.')[1], value]));
}

it('the active span gets the decision, without the subject', async () => {
  const { server, limiter } = over({ onDecision: setSpanAttributes });
  const checked = await traced(async () => {
    await limiter.check(exports, 'alice');
    await limiter.peek(api, 'alice');
    await limiter.charge(api, 'alice');
  });
  expect(checked).toEqual({
    kind: 'check',
    rule: 'exports',
    key_hash: expect.stringMatching(/^[0-9a-f]{16}$/),
    allowed: true,
    source: 'server',
    limit: 1,
    remaining: 0,
    retry_after_ms: 0,
    degraded: false,
  });
  const several = await traced(() => limiter.checkAll([api.of('alice'), exports.of('alice')]));
  const denied = { allowed: false, retry_after_ms: 60_000, rules: ['api', 'exports'] };
  expect(several).toMatchObject(denied);
  server.fail();
  const degraded = { source: 'error', degraded: true, reason: 'connection' };
  expect(await traced(() => limiter.check(api, 'alice'))).toMatchObject(degraded);
  server.fail(new Error('WRONGTYPE of alice'));
  const rejected = await traced(() =>
    expect(limiter.check(api, 'alice')).rejects.toThrow(CommandRejectedError),
  );
  expect(rejected).toMatchObject({ kind: 'rejected', rule: 'api', error: 'WRONGTYPE' });
});

it('each of two calls at a time sets the attributes of its own span', async () => {
  const { limiter } = over({ onDecision: setSpanAttributes });
  const tracer = provider.getTracer('test');
  exporter.reset();
  await Promise.all(
    ['first', 'second'].map((name) =>
      tracer.startActiveSpan(name, async (span) => {
        await limiter.check(fixed(name, 1, '60s'), 'alice');
        span.end();
      }),
    ),
  );
  const rules = exporter
    .getFinishedSpans()
    .map(({ name, attributes }) => [name, attributes['redis_throttle.rule']]);
  expect(rules).toEqual([
    ['first', 'first'],
    ['second', 'second'],
  ]);
});

it('without a span nothing happens', async () => {
  const { limiter } = over({ onDecision: setSpanAttributes });
  expect((await limiter.check(api, 'alice')).allowed).toBe(true);
});
