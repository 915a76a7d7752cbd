/** Finds the examples in the doc comments of the sources. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import ts from 'typescript';

const SOURCES = resolve(import.meta.dirname, '../src');

/** An `@example` of a doc comment. */
export interface Example {
  /** The declaration, such as `gcra`, `Limiter.check` or `Limiter.constructor`. */
  readonly name: string;
  readonly text: string;
}

/** Returns the name of a declaration, or undefined if it may not have an example. */
function nameOf(node: ts.Node): string | undefined {
  if (ts.isVariableStatement(node)) return node.declarationList.declarations[0]?.name.getText();
  if (ts.isFunctionDeclaration(node) || ts.isClassDeclaration(node)) return node.name?.getText();
  if (ts.isConstructorDeclaration(node)) return `${nameOf(node.parent)}.constructor`;
  if (ts.isMethodDeclaration(node)) return `${nameOf(node.parent)}.${node.name.getText()}`;
  return undefined;
}

function examplesIn(path: string): Example[] {
  const text = readFileSync(path, 'utf8');
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const found: Example[] = [];
  const visit = (node: ts.Node): void => {
    const name = nameOf(node);
    if (name !== undefined) {
      for (const { tagName, comment } of ts.getJSDocTags(node)) {
        if (tagName.text !== 'example') continue;
        found.push({ name, text: ts.getTextOfJSDocComment(comment) ?? '' });
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  const tags = text.match(/^ *\* @example/gm)?.length ?? 0;
  if (found.length !== tags) throw new Error(`found ${found.length} of ${tags} examples: ${path}`);
  return found;
}

/** Returns the examples of all sources. */
export function examples(): Example[] {
  return readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts'))
    .flatMap((name) => examplesIn(join(SOURCES, name)));
}

/**
 * Returns the examples as one program, to be compiled.
 *
 * @param names The names that the package exports.
 */
export function programOf(all: readonly Example[], names: readonly string[]): string {
  const isImport = (line: string) => line.startsWith('import ');
  const lines = all.map(({ text }) => text.split('\n'));
  const bodies = lines.map((example) => example.filter((line) => !isImport(line)).join('\n'));
  return [
    `import { ${names.join(', ')} } from 'redis-throttle-client';`,
    ...new Set(lines.flat().filter(isImport)),
    'declare const limiter: Limiter;',
    ...bodies.map((body, at) => `export async function example${at}() {\n${body}\n}`),
  ].join('\n');
}
