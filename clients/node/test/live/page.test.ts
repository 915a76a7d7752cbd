/** Runs the programs of the pages against a real server, and checks a page's list of options. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import ts from 'typescript';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { type Program, programs } from '../pages.js';
import { BACKEND, freePort, type Server, serve, until } from './server.js';

const PACKAGE = resolve(import.meta.dirname, '../..');
const page = readFileSync(join(PACKAGE, '../../docs/clients/node.md'), 'utf8');
const specification = readFileSync(join(PACKAGE, '../SPEC.md'), 'utf8');
const found = programs();
const listens = ({ text }: Program) => text.includes('8080');
const fails = ({ text }: Program) => text.includes('CommandRejectedError');
const of = (choose: (program: Program) => boolean) =>
  // A server without the module has no reservations.
  found.filter((one) => choose(one) && (BACKEND === 'module' || !one.text.includes('.reserve(')));
/** NestJS finds what a class needs by its decorators. */
const TYPESCRIPT: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext,
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
};
/** The output of a program that contains a text. */
const PRINTED = [
  ['allowed ? `allowed,', 'allowed, 9 left\n'],
  ["console.log('at work')", 'at work\n'],
  ["console.log(tokens, 'tokens')", '1240 tokens\n'],
] as const;

let server: Server;
let folder: string;
const running: ChildProcess[] = [];

beforeAll(async () => {
  server = await serve();
  folder = mkdtempSync(join(tmpdir(), 'redis-throttle-page-'));
  // The packages of the application are those of this package and the package itself.
  symlinkSync(join(PACKAGE, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
});
afterAll(async () => {
  for (const child of running) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
  server.admin.disconnect();
  await server.stop();
});
beforeEach(async () => {
  await server.admin.flushall();
});

function start({ name, text }: Program, port = 0): ChildProcess {
  const file = join(folder, `${name.replaceAll(/\W/g, '-')}.js`);
  const placed = text.replaceAll('7777', String(server.port)).replaceAll('8080', String(port));
  const ours = join(PACKAGE, 'dist');
  const from = (_: string, path = '/index') => `'${ours}${path}.js'`;
  const program = placed.replaceAll(/'redis-throttle-client(\/[a-z-]+)?'/g, from);
  writeFileSync(file, ts.transpile(program, TYPESCRIPT));
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'pipe'] });
  running.push(child);
  return child;
}

it.each(of((program) => !listens(program)))(
  '$name runs to its end',
  // Retried, because a busy machine may miss the page's deadline.
  { retry: 2 },
  async (program) => {
    await server.admin.flushall();
    const child = start(program);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data) => {
        output += data;
      });
    }
    const [code] = await once(child, 'close');
    const printed = PRINTED.filter(([mark]) => program.text.includes(mark));
    expect({ code, output }).toEqual({ code: 0, output: printed.map(([, line]) => line).join('') });
  },
);

it.each(of(fails))(
  '$name responds to a CommandRejectedError without the stack',
  async (program) => {
    const port = await freePort();
    start(program, port);
    const request = () => fetch(`http://127.0.0.1:${port}/`).catch(() => undefined);
    await until('it listens', async () => (await request()) !== undefined);
    const response = await request();
    expect(response?.status).toBe(500);
    expect(await response?.json()).toEqual({ title: 'Internal Server Error', status: 500 });
  },
);

it.each(of((program) => listens(program) && !fails(program)))(
  '$name allows ten calls, and denies the eleventh',
  { retry: 2 },
  async (program) => {
    const port = await freePort();
    start(program, port);
    const request = () => fetch(`http://127.0.0.1:${port}/`);
    await until('it listens', () =>
      request().then(
        () => true,
        () => false,
      ),
    );
    await server.admin.flushall();
    await server.clock.freeze();
    const all = [];
    for (let call = 0; call < 11; call += 1) all.push(await request());
    expect(all.map(({ status }) => status)).toEqual([...Array(10).fill(200), 429]);
    if (program.text.includes('left:')) expect(await all[9]?.json()).toEqual({ left: 0 });
    expect(Number(all[10]?.headers.get('Retry-After'))).toBeGreaterThan(0);
    if (!program.text.includes("'/login'")) return;
    const logsIn = async (password: string, wanted: number) => {
      const body = JSON.stringify({ password });
      const headers = { 'Content-Type': 'application/json' };
      const url = `http://127.0.0.1:${port}/login`;
      return (await fetch(url, { method: 'POST', headers, body })).status === wanted;
    };
    // Repeated, because the unit of a right password comes back in the background.
    const right = () => logsIn('right', 200);
    for (let call = 0; call < 7; call += 1) await until('a right password is accepted', right);
    const wrong = () => logsIn('wrong', 401);
    for (let call = 0; call < 5; call += 1) await until('a wrong password is refused', wrong);
    expect(await logsIn('right', 429)).toBe(true);
  },
);

it('the page or SPEC.md names every option', () => {
  const source = (name: string) => readFileSync(join(PACKAGE, `src/${name}.ts`), 'utf8');
  const options = (name: string, type: string) => {
    const [, body = ''] = source(name).split(new RegExp(`interface ${type}\\b`));
    return [...(body.split('\n}')[0] as string).matchAll(/^ {2}(\w+)\?: /gm)].map(([, at]) => at);
  };
  const all = [
    ...options('rules/options', 'LimiterOptions'),
    ...options('rules/keys', 'KeyOptions'),
    ...options('rules/forms', 'RuleOptions'),
    ...options('web/request', 'MiddlewareOptions'),
    ...options('web/express', 'ExpressOptions'),
  ];
  expect(all.length).toBeGreaterThan(20);
  const snake = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const isNamed = (name = '') =>
    page.includes(`\`${name}\``) || specification.includes(`\`${snake(name)}\``);
  expect(all.filter((name) => !isNamed(name))).toEqual([]);
});
