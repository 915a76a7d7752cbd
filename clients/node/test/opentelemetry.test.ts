/** Tests the attributes of spans, with the SDK of OpenTelemetry. */
import { context } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { fixed } from '../src/index.js';
import { setSpanAttributes } from '../src/opentelemetry.js';
import { api, over } from './fakes.js';

const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });

beforeAll(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());

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
