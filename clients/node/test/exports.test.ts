/** Tests that the package exports every type that its public signatures name. */
import { resolve } from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '..');
const ENTRIES = ['index', 'express', 'hono', 'express-rate-limit', 'testing'].map((name) =>
  resolve(root, `src/${name}.ts`),
);

/** Collects the types of this package that the signatures of exported symbols name. */
class Names {
  readonly found = new Set<ts.Symbol>();

  constructor(private readonly checker: ts.TypeChecker) {}

  /** Returns the symbol itself instead of a name under which it was imported. */
  itself(symbol: ts.Symbol): ts.Symbol {
    const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0;
    return isAlias ? this.checker.getAliasedSymbol(symbol) : symbol;
  }

  exportsOf(file: ts.SourceFile): ts.Symbol[] {
    const module = this.checker.getSymbolAtLocation(file) as ts.Symbol;
    return this.checker.getExportsOfModule(module).map((symbol) => this.itself(symbol));
  }

  add(symbol: ts.Symbol): void {
    if (this.found.has(symbol)) return;
    this.found.add(symbol);
    for (const declaration of symbol.declarations ?? []) this.#visit(declaration);
  }

  #visit(node: ts.Node): void {
    if (ts.isBlock(node) || isHidden(node)) return;
    if (ts.isVariableDeclaration(node)) {
      if (node.type !== undefined) this.#visit(node.type);
      return;
    }
    if (ts.isTypeReferenceNode(node)) this.#name(node.typeName);
    else if (ts.isExpressionWithTypeArguments(node)) this.#name(node.expression);
    else if (ts.isTypeQueryNode(node)) this.#name(node.exprName);
    ts.forEachChild(node, (child) => this.#visit(child));
  }

  #name(node: ts.Node): void {
    const symbol = this.itself(this.checker.getSymbolAtLocation(node) as ts.Symbol);
    const path = symbol.declarations?.[0]?.getSourceFile().fileName ?? '';
    const isParameter = (symbol.flags & ts.SymbolFlags.TypeParameter) !== 0;
    if (path.startsWith(`${root}/src/`) && !isParameter) this.add(symbol);
  }
}

function isHidden(node: ts.Node): boolean {
  if (!ts.isClassElement(node) && !ts.isTypeElement(node)) return false;
  if (ts.getJSDocTags(node).some(({ tagName }) => tagName.text === 'internal')) return true;
  if (node.name !== undefined && ts.isPrivateIdentifier(node.name)) return true;
  return (ts.getCombinedModifierFlags(node as ts.Declaration) & ts.ModifierFlags.Private) !== 0;
}

it('each type of a public signature is exported', () => {
  const { config } = ts.readConfigFile(resolve(root, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const program = ts.createProgram(ENTRIES, options);
  const names = new Names(program.getTypeChecker());
  const files = ENTRIES.map((entry) => program.getSourceFile(entry) as ts.SourceFile);
  const exported = new Set(files.flatMap((file) => names.exportsOf(file)));
  for (const symbol of exported) names.add(symbol);
  const missing = [...names.found].filter((symbol) => !exported.has(symbol));
  expect(missing.map(({ name }) => name)).toEqual([]);
});
