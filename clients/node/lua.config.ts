/** Loads `.lua` files as modules that export their text, for the build and for the tests. */
export const lua = {
  name: 'lua',
  transform(code: string, file: string) {
    if (!file.endsWith('.lua')) return null;
    return {
      code: `export default ${JSON.stringify(code)};`,
      map: null,
      moduleType: 'js' as const,
    };
  },
};
