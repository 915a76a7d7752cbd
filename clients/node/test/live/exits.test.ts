/** Tests, with a real server, that a program neither hangs nor exits early due to a limiter. */
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Server, serve } from './server.js';
import { versions } from './versions.js';

describe.each(Object.keys(versions))('a program with %s', (name) => {
  let server: Server;
  beforeAll(async () => {
    server = await serve();
  });
  afterAll(async () => {
    server.admin.disconnect();
    await server.stop();
  });

  async function run(...words: string[]): Promise<string> {
    const program = resolve(import.meta.dirname, 'exits.mjs');
    const all = [program, name, String(server.port), ...words];
    const { stdout } = await promisify(execFile)(process.execPath, all, { timeout: 60_000 });
    return stdout;
  }

  it.each([0, 1, 2, 3, 4])(
    'exits soon if it closes its client %i turns after a limiter began to dial',
    async (turns) => {
      // Far less than the minute for which the limiter would wait for its connection.
      expect(Number(await run('turns', String(turns)))).toBeLessThan(10_000);
    },
  );

  it('does not exit while it waits', async () => {
    expect(await run('wait')).toBe('waited\n');
  });
});
