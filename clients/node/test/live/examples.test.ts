/** Runs the examples of the doc comments with a real server, whose clock stands still. */
import { compileFunction } from 'node:vm';
import * as ioredis from 'ioredis';
import * as redis from 'redis';
import ts from 'typescript';
import { expect, it } from 'vitest';
import * as index from '../../src/index.js';
import { examples } from '../examples.js';
import { frozen } from './frozen.js';

/** The functions that a reader needs in the first hour. */
const FIRST_HOUR = [
  'Limiter.constructor',
  'Limiter.fromUrl',
  'Limiter.admit',
  'Limiter.charge',
  'Limiter.check',
  'Limiter.checkAll',
  'Limiter.lease',
  'Limiter.peek',
  'Limiter.refund',
  'Limiter.reserve',
  'Limiter.wait',
  'Admission.settle',
  'Reservation.commit',
  'backoff',
  'fixed',
  'gcra',
  'leakyBucket',
  'lease',
  'policy',
  'quota',
  'rate',
  'sliding',
  'slidingLog',
  'tokenBucket',
];
/** The address of the server in the examples. */
const ADDRESS = '127.0.0.1:7777';
const PATIENT = { timeoutMs: 60_000 };

/** The limiter of the package, with a timeout for a busy machine. */
class Limiter extends index.Limiter {
  constructor(client: index.Client, options: index.LimiterOptions = {}) {
    super(client, { ...PATIENT, ...options });
  }

  static override fromUrl(url: string, options: index.UrlOptions = {}): index.Limiter {
    return index.Limiter.fromUrl(url, { ...PATIENT, ...options });
  }
}

/**
 * Compiles an example as an async function, which returns the values of its variables. Each
 * expression with a result behind it becomes a call of `compare`.
 */
function compiled(text: string): string {
  const source = ts.createSourceFile('example.ts', text, ts.ScriptTarget.Latest, true);
  const variables: string[] = [];
  const lines: string[] = [];
  for (const statement of source.statements) {
    if (ts.isImportDeclaration(statement)) continue;
    if (ts.isVariableStatement(statement)) {
      variables.push(...statement.declarationList.declarations.map(({ name }) => name.getText()));
    }
    const [comment] = ts.getTrailingCommentRanges(text, statement.end) ?? [];
    if (comment === undefined) lines.push(statement.getText());
    else if (ts.isExpressionStatement(statement)) {
      const value = statement.expression.getText();
      const result = text.slice(comment.pos, comment.end).replace(/^\/\/ /, '');
      lines.push(`compare(${value}, ${result}, ${JSON.stringify(value)});`);
    } else throw new Error(`a result is behind no expression: ${statement.getText()}`);
  }
  const code = `async function example() {\n${lines.join('\n')}\nreturn [${variables}];\n}`;
  const { outputText } = ts.transpileModule(code, {
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
  });
  return `${outputText}\nreturn example();`;
}

/** Closes a limiter or a client that an example has opened. */
async function close(value: unknown): Promise<void> {
  if (value instanceof index.Limiter) await value.close();
  else if (value instanceof ioredis.Redis) value.disconnect();
  else (value as { destroy?: () => void }).destroy?.();
}

const live = frozen();
const found = examples();

it.each(FIRST_HOUR)('%s has an example', (name) => {
  expect(found.map((example) => example.name)).toContain(name);
});

it.each(found)('the example of $name gives the results that it shows', async ({ text }) => {
  let results = 0;
  const compare = (value: unknown, result: unknown, expression: string) => {
    results += 1;
    expect(value, expression).toEqual(result);
  };
  const { limiter, server } = live;
  const { Redis } = ioredis;
  const { createClient } = redis;
  const scope = { ...index, Limiter, limiter, Redis, createClient, compare };
  const code = compiled(text.replaceAll(ADDRESS, `127.0.0.1:${server.port}`));
  const run = compileFunction(code, Object.keys(scope));
  const opened: unknown[] = await run(...Object.values(scope));
  await Promise.all(opened.map(close));
  expect(results).toBeGreaterThan(0);
});
