import { defineConfig } from 'vitest/config';
import { lua } from './lua.config.ts';

/** The suites that do not depend on the back end. */
const ONCE = [
  'admission',
  'backends',
  'cluster-healing',
  'cluster-seed',
  'examples',
  'exits',
  'healing',
  'lab',
  'leases',
  'resets',
  'stores',
  'tls',
  'url',
].map((name) => `test/live/${name}.test.ts`);

/** Runs the whole suite against servers with one back end, which the limiters must find. */
const live = (backend: string) => ({
  extends: true as const,
  test: {
    name: backend,
    include: ['test/live/*.test.ts'],
    exclude: backend === 'module' ? [] : ONCE,
    env: { RL_BACKEND: backend },
  },
});

export default defineConfig({
  plugins: [lua],
  test: {
    maxWorkers: 4,
    // Longer than the longest wait of a test, which names what it waited for.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    projects: [
      { extends: true, test: { name: 'unit', include: ['test/*.test.ts'] } },
      ...['module', 'functions', 'script'].map(live),
    ],
  },
});
