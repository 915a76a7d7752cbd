/** Tests the lines of `jsonLog`. */
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import {
  fixed,
  gcra,
  InvalidArgumentError,
  type JsonLogOptions,
  jsonLog,
  sliding,
} from '../src/index.js';
import { api, over, times } from './fakes.js';

const exports = fixed('exports', 1, '60s');

function logged(options: JsonLogOptions = {}, stream = new PassThrough()) {
  const { server, limiter } = over();
  limiter.onDecision(jsonLog(stream, { clock: server.clock, ...options }));
  /** Returns the lines since the last call. */
  const lines = () => {
    const text = String(stream.read() ?? '');
    expect(text).not.toContain('alice');
    return text
      .split('\n')
      .slice(0, -1)
      .map((line) => {
        const { time_ms, key_hash, ...fields } = JSON.parse(line);
        expect([typeof time_ms, key_hash.length]).toEqual(['number', 16]);
        return fields;
      });
  };
  return { server, limiter, stream, lines };
}

describe('jsonLog', () => {
  it('drops lines above the bound per second, and reports their number', async () => {
    const { server, limiter, lines } = logged({ linesPerSecond: 2, audit: ['audited'] });
    const audited = sliding('audited', 100, '60s');
    const counts = () => lines().map(({ rule, dropped = 0 }) => [rule, dropped]);
    await times(6, () => limiter.check(exports, 'alice'));
    expect(counts()).toEqual([
      ['exports', 0],
      ['exports', 0],
    ]);
    await times(2, () => limiter.check(audited, 'alice'));
    expect(counts()).toEqual([
      ['audited', 3],
      ['audited', 0],
    ]);
    await server.advance(999);
    await limiter.check(exports, 'alice');
    expect(counts()).toEqual([]);
    await server.advance(1);
    await times(3, () => limiter.check(exports, 'alice'));
    expect(counts()).toEqual([
      ['exports', 1],
      ['exports', 0],
    ]);
  });

  it('writes every event of an audited rule', async () => {
    const { limiter, lines } = logged({ audit: ['api'], linesPerSecond: 1 });
    await limiter.check(api, 'alice');
    await limiter.checkAll([exports.of('alice'), api.of('alice')]);
    await limiter.peek(api, 'alice');
    await limiter.charge(api, 'alice');
    await limiter.refund(api, 'alice');
    await limiter.check(gcra('other', 6, 10, '60s'), 'alice');
    expect(lines().map(({ kind, rule }) => `${kind} ${rule}`)).toEqual([
      'check api',
      'check exports',
      'peek api',
      'charge api',
      'refund api',
    ]);
  });

  it('drops lines while the stream is full, but not those of an audited rule', async () => {
    const stream = new PassThrough({ highWaterMark: 1 });
    const { limiter, lines } = logged({ audit: ['api'] }, stream);
    await times(3, () => limiter.check(exports, 'alice'));
    await limiter.check(api, 'alice');
    const counts = lines().map(({ rule, dropped = 0 }) => [rule, dropped]);
    expect(counts).toEqual([
      ['exports', 0],
      ['api', 1],
    ]);
  });

  it('writes nothing to a stream that has ended, which would emit an error', async () => {
    const { limiter, stream } = logged({ audit: ['exports'] });
    const errors: unknown[] = [];
    stream.on('error', (error) => errors.push(error)).end();
    await limiter.check(exports, 'alice');
    await new Promise(setImmediate);
    expect(errors).toEqual([]);
  });

  it('rejects a bound of 0', () => {
    expect(() => jsonLog(new PassThrough(), { linesPerSecond: 0 })).toThrow(InvalidArgumentError);
  });
});
