/** Passes the clients of both drivers with their own types, and compiles whole programs. */
import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { Cluster, Redis } from 'ioredis';
import { createClient, createClientPool, createCluster } from 'redis';
import ts from 'typescript';
import { expect, it } from 'vitest';
import { Limiter } from '../src/index.js';

const root = resolve(import.meta.dirname, '..');

it('the limiter accepts the client of each driver without a cast', () => {
  const limiters = [
    () => new Limiter(createClient()),
    () => new Limiter(createClientPool()),
    () => new Limiter(createCluster({ rootNodes: [] })),
    () => new Limiter(new Redis()),
    () => new Limiter(new Cluster([])),
  ];
  expect(limiters).toHaveLength(5);
});

it('the program of each framework compiles under --strict', () => {
  const { config } = ts.readConfigFile(resolve(root, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const programs = readdirSync(resolve(root, 'test/programs')).map((name) =>
    resolve(root, 'test/programs', name),
  );
  expect(programs.length).toBeGreaterThan(3);
  // An application may be less strict than this package.
  const own = { exactOptionalPropertyTypes: false, noUncheckedIndexedAccess: false };
  const program = ts.createProgram([...programs, resolve(root, 'src/lua.d.ts')], {
    ...options,
    ...own,
  });
  const texts = ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => {
    return `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`;
  });
  expect(texts).toEqual([]);
});
