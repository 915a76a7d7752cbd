import { basename } from 'node:path';
import { defineConfig } from 'tsdown';
import { lua } from './lua.config.ts';

/** The files of `exports` in package.json. */
const entries = [
  'index',
  'opentelemetry',
  'prometheus',
  'testing',
  'web/express',
  'web/express-rate-limit',
  'web/fastify-rate-limit',
  'web/hono',
  'web/nestjs',
];

export default defineConfig({
  entry: Object.fromEntries(entries.map((path) => [basename(path), `src/${path}.ts`])),
  format: ['esm', 'cjs'],
  target: 'node20',
  platform: 'node',
  fixedExtension: false,
  dts: true,
  plugins: [lua],
});
