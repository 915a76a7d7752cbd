/** Finds the programs of the pages that use the package. They run by themselves. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../../..');
const SKIPPED = new Set(['dist', 'node_modules', 'target']);
const LANGUAGES = new Set(['cjs', 'javascript', 'js', 'mjs', 'mts', 'ts', 'typescript']);

/** A block in JavaScript or TypeScript that names the package. */
export interface Program {
  /** The page and the line, `docs/clients/node.md:20`. */
  readonly name: string;
  readonly text: string;
}

function pages(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (entry.name.startsWith('.') || SKIPPED.has(entry.name)) return [];
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return pages(path);
    return entry.isFile() && path.endsWith('.md') ? [path] : [];
  });
}

/** Returns the blocks of a page, with their languages and lines. */
export function blocks(page: string): { language: string; line: number; text: string }[] {
  const all = readFileSync(join(ROOT, page), 'utf8');
  return [...all.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map((block) => ({
    language: block[1] as string,
    line: all.slice(0, block.index).split('\n').length,
    text: block[2] as string,
  }));
}

/** Returns the programs of all pages of the repository. A driver's own are in tests/snippets.rs. */
export function programs(): Program[] {
  return pages(ROOT).flatMap((path) => {
    const page = relative(ROOT, path);
    return blocks(page)
      .filter(({ language, text }) => LANGUAGES.has(language) && /redis-throttle-client/.test(text))
      .map(({ line, text }) => ({ name: `${page}:${line}`, text }));
  });
}
