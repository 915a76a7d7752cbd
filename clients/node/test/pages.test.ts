/** Compiles the programs of the pages as an application in TypeScript would. */
import { resolve } from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';
import * as index from '../src/index.js';
import { examples, programOf } from './examples.js';
import { blocks, programs } from './pages.js';

const root = resolve(import.meta.dirname, '..');
const found = programs();
const options: ts.CompilerOptions = {
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext,
  experimentalDecorators: true,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  types: ['node'],
  paths: {
    'redis-throttle-client': [resolve(root, 'src/index.ts')],
    'redis-throttle-client/*': [resolve(root, 'src/*.ts'), resolve(root, 'src/web/*.ts')],
  },
};

/** Compiles each program by itself, because a declaration of one must not help another. */
class Compiler {
  readonly #host = ts.createCompilerHost(options);
  readonly #texts = new Map<string, string>();
  readonly #parsed = new Map<string, ts.SourceFile | undefined>();
  readonly #lua = resolve(root, 'src/lua.d.ts');

  constructor() {
    const { readFile, fileExists, getSourceFile } = this.#host;
    this.#host.readFile = (path) => this.#texts.get(path) ?? readFile(path);
    this.#host.fileExists = (path) => this.#texts.has(path) || fileExists(path);
    this.#host.getSourceFile = (path, ...rest) => {
      if (!this.#parsed.has(path)) this.#parsed.set(path, getSourceFile(path, ...rest));
      return this.#parsed.get(path);
    };
  }

  errors(text: string, at: number): string[] {
    const path = resolve(root, `program-${at}.ts`);
    this.#texts.set(path, text);
    const program = ts.createProgram([path, this.#lua], options, this.#host);
    const file = program.getSourceFile(path);
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
      ({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'),
    );
  }
}

it('the pages of the package have programs', () => {
  const pages = new Set(found.map(({ name }) => name.split(':')[0]));
  const ownPages = ['README.md', 'clients/node/README.md', 'docs/clients/node.md'];
  expect([...pages]).toEqual(expect.arrayContaining(ownPages));
  const expected = blocks('docs/clients/node.md').filter(({ language }) => language !== 'sh');
  const listed = found.filter(({ name }) => name.startsWith('docs/clients/node.md'));
  expect(expected.length).toBe(listed.length);
});

it('the examples of the doc comments compile under --strict', { timeout: 120_000 }, () => {
  const text = programOf(examples(), Object.keys(index));
  expect(new Compiler().errors(text, 0)).toEqual([]);
});

it('every program compiles under --strict', { timeout: 120_000 }, () => {
  const compiler = new Compiler();
  const errors = found.map(({ name, text }, at) => [name, compiler.errors(text, at)] as const);
  expect(Object.fromEntries(errors.filter(([, all]) => all.length > 0))).toEqual({});
});
