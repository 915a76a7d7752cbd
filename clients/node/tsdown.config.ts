import { defineConfig } from 'tsdown';
import { lua } from './lua.config.ts';

export default defineConfig({
  entry: [
    'index',
    'express',
    'hono',
    'express-rate-limit',
    'fastify-rate-limit',
    'nestjs',
    'opentelemetry',
    'prometheus',
    'testing',
  ].map((name) => `src/${name}.ts`),
  format: ['esm', 'cjs'],
  target: 'node20',
  platform: 'node',
  fixedExtension: false,
  dts: true,
  plugins: [lua],
});
