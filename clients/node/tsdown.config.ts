import { defineConfig } from 'tsdown';

export default defineConfig({
  entry: ['index', 'express', 'hono', 'express-rate-limit', 'testing'].map(
    (name) => `src/${name}.ts`,
  ),
  format: ['esm', 'cjs'],
  target: 'node20',
  platform: 'node',
  fixedExtension: false,
  dts: true,
});
