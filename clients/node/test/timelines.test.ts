/** Runs the timelines that all clients share, over connections of each driver. */
import { afterEach, describe, it, vi } from 'vitest';
import { drivers } from './scripted.js';
import { table } from './shared-cases.js';
import { Runner, type Timeline } from './timeline-runner.js';

const timelines = (table.timelines as unknown as Timeline[]).filter(
  ({ languages }) => languages?.includes('node') ?? true,
);

afterEach(() => {
  vi.restoreAllMocks();
});

describe.each(Object.entries(drivers))('%s', (_, open) => {
  it.each(timelines)('$name', (timeline) => new Runner(timeline, open).run());
});
