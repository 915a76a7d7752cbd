/**
 * Tests the published package after its build: packs it, checks it, and installs it into a consumer
 * of each module kind.
 */
import { execFile, execFileSync } from 'node:child_process';
import {
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { unexported } from './declarations.mjs';

const root = join(import.meta.dirname, '..');
const bin = (name) => join(root, 'node_modules/.bin', name);
const run = (program, args, cwd = root) => execFileSync(program, args, { cwd, stdio: 'inherit' });

const folder = mkdtempSync(join(tmpdir(), 'redis-throttle-package-'));
try {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const declared = Object.values(manifest.exports).flatMap((one) => one.import?.types ?? []);
  const entries = declared.map((path) => path.replace(/^\.\/dist\/(.*)\.d\.ts$/, '$1'));
  const hidden = unexported(join(root, 'dist'), entries);
  if (hidden.length > 0) throw new Error(`in the declarations, but not exported: ${hidden}`);

  const packed = execFileSync('npm', ['pack', '--json', '--pack-destination', folder], {
    cwd: root,
  });
  const [{ filename, files }] = JSON.parse(packed);
  const tarball = join(folder, filename);
  for (const { path } of files) {
    if (!/^(dist\/|package\.json$|README\.md$|LICENSE)/.test(path))
      throw new Error(`packed: ${path}`);
  }
  for (const name of ['README.md', 'LICENSE', 'LICENSE-MIT', 'LICENSE-APACHE']) {
    if (!files.some(({ path }) => path === name)) throw new Error(`not packed: ${name}`);
  }
  run(bin('publint'), ['--strict', tarball]);
  // Node 20 and newer read `exports`; TypeScript's oldest resolution reads `typesVersions`.
  run(bin('attw'), [tarball]);

  const names = ['', '/express', '/hono', '/express-rate-limit'];
  names.push('/fastify-rate-limit', '/nestjs', '/testing', '/opentelemetry', '/prometheus');
  const body = `
    const server = new FakeServer();
    const limiter = new Limiter(server, { clock: server.clock });
    const middleware = [rateLimit({ limiter, rules: gcra('api', 6, 10, '60s') })];
    new RedisThrottleStore({ limiter });
    redisThrottleStore({ limiter });
    new RedisThrottleStorage({ limiter });
    metrics(limiter);
    limiter.onDecision(setSpanAttributes);
    void Limiter.fromUrl('redis://127.0.0.1:7777').close();
    limiter.check(gcra('api', 6, 10, '60s'), '42').then(({ remaining }) => {
      if (remaining !== 5 || middleware.length !== 1) throw new Error('not as the source');
    });
  `;
  const wanted = ['{ Limiter, gcra }', '{ rateLimit }', '{ rateLimit: hono }'];
  wanted.push('{ RedisThrottleStore }', '{ redisThrottleStore }', '{ RedisThrottleStorage }');
  wanted.push('{ FakeServer }', '{ setSpanAttributes }', '{ metrics }');
  const load = (form) => names.map((name, at) => form(wanted[at], `redis-throttle-client${name}`));
  const imports = load((what, from) => `import ${what.replace(': ', ' as ')} from '${from}';`);
  const requires = load((what, from) => `const ${what} = require('${from}');`);
  const sources = {
    'esm.mjs': [...imports, body],
    'cjs.cjs': [...requires, body],
    'types.mts': [...imports, 'void hono;', body],
    'types.cts': [...imports, 'void hono;', body],
  };
  for (const [name, lines] of Object.entries(sources))
    writeFileSync(join(folder, name), lines.join('\n'));
  writeFileSync(join(folder, 'package.json'), '{ "private": true }');
  run('npm', ['install', '--offline', '--no-audit', '--no-fund', '--silent', tarball], folder);
  // The frameworks are optional peers.
  const peers = ['@fastify', '@hono', '@nestjs', '@types', 'express', 'fastify', 'hono', 'ioredis'];
  const others = ['@opentelemetry', 'prom-client', 'reflect-metadata', 'rxjs'];
  for (const name of [...peers, ...others]) {
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name));
  }
  const programs = readdirSync(join(root, 'test/programs')).map((name) => name.replace('.ts', ''));
  for (const name of programs) {
    copyFileSync(join(root, `test/programs/${name}.ts`), join(folder, `${name}.mts`));
  }
  const dist = join(folder, 'node_modules/redis-throttle-client/dist');
  const libraries = readdirSync(dist).filter((name) => /^library-.*\.c?js$/.test(name));
  if (libraries.length !== 2) throw new Error(`packed of the library: ${libraries}`);
  for (const name of libraries) {
    const packed = await import(join(dist, name));
    for (const [form, file] of [
      ['functions', 'redis_throttle'],
      ['script', 'redis_throttle_script'],
    ]) {
      const text = readFileSync(join(root, `../../functions/${file}.lua`), 'utf8');
      if (packed[form] !== text) throw new Error(`${name}: not the text of functions/${file}.lua`);
    }
  }
  run('node', ['esm.mjs'], folder);
  run('node', ['cjs.cjs'], folder);
  const strict = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext'];
  const types = ['--types', 'node', '--typeRoots', join(root, 'node_modules/@types')];
  // Only the decorators of NestJS need an option. Its own declarations are not checked.
  const lax = ['--skipLibCheck', '--experimentalDecorators'];
  const compile = (...args) =>
    promisify(execFile)(bin('tsc'), [...strict, ...types, ...args], { cwd: folder }).catch(
      ({ stdout, message }) => Promise.reject(new Error(stdout || message)),
    );
  // One module kind at a time: both add properties to the frameworks' types.
  await Promise.all([
    compile('types.mts'),
    compile('types.cts'),
    ...programs.map((name) => compile(...lax, `${name}.mts`)),
  ]);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
