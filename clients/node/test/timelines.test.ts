/** Runs the timelines that all clients share, over connections of each driver. */
import { afterEach, describe, it, vi } from 'vitest';
import { clusters, drivers } from './scripted.js';
import { table } from './shared-cases.js';
import { Runner, type Timeline } from './timeline-runner.js';

const timelines = (table.timelines as unknown as Timeline[]).filter(
  ({ languages }) => languages?.includes('node') ?? true,
);

afterEach(() => {
  vi.restoreAllMocks();
});

describe.each(Object.entries(drivers))('%s', (driver, open) => {
  const cluster = clusters[driver as keyof typeof drivers];
  it.each(timelines)('$name', (timeline) =>
    new Runner(timeline, timeline.nodes === undefined ? open : cluster).run(),
  );
});
