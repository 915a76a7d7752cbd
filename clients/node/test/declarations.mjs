/** Finds names in the built declarations that an application cannot import. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';

/** Returns the statements of each `.d.ts` file of a folder, by the name of the file. */
function declarations(folder) {
  const names = readdirSync(folder).filter((name) => name.endsWith('.d.ts'));
  const parse = (name) => {
    const text = readFileSync(join(folder, name), 'utf8');
    if (text.includes('@internal')) throw new Error(`${name} has an @internal member`);
    return ts.createSourceFile(name, text, ts.ScriptTarget.Latest).statements;
  };
  return new Map(names.map((name) => [name, parse(name)]));
}

function declared(statement) {
  if (ts.isVariableStatement(statement)) return statement.declarationList.declarations;
  const isNamed =
    ts.isInterfaceDeclaration(statement) ||
    ts.isTypeAliasDeclaration(statement) ||
    ts.isClassDeclaration(statement) ||
    ts.isFunctionDeclaration(statement) ||
    ts.isEnumDeclaration(statement);
  return isNamed ? [statement] : [];
}

function exported(statement) {
  if (!ts.isExportDeclaration(statement) || !statement.exportClause) return [];
  return statement.exportClause.elements.map(({ name, propertyName }) => propertyName ?? name);
}

/**
 * Returns the names that files of `folder` declare and no entry exports. An entry is a path of
 * `exports` in package.json. The other files hold what several entries share.
 */
export function unexported(folder, entries) {
  const files = declarations(folder);
  const of = (select, name) => (files.get(name) ?? []).flatMap(select).map(({ text }) => text);
  const names = [...files.keys()].flatMap((file) =>
    of((statement) => declared(statement).map(({ name }) => name), file),
  );
  const exports = new Set(entries.flatMap((entry) => of(exported, `${entry}.d.ts`)));
  if (exports.size < 50) throw new Error(`the entries export ${exports.size} names`);
  return names.filter((name) => !exports.has(name));
}
