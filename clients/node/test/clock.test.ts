/** Tests the system clock. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { systemClock } from '../src/rules/clock.js';

const DAY_MS = 86_400_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('the system clock waits longer than a single timer of Node can', () => {
  const call = vi.fn();
  systemClock.after(60 * DAY_MS, call);
  vi.advanceTimersByTime(60 * DAY_MS - 1);
  expect(call).not.toHaveBeenCalled();
  // Each part of the wait ends one turn of the event loop later.
  vi.advanceTimersByTime(1 + 3);
  expect(call).toHaveBeenCalledOnce();
});

it('the system clock cancels a wait, also after the first part of a long one', () => {
  const call = vi.fn();
  const stop = systemClock.after(60 * DAY_MS, call);
  vi.advanceTimersByTime(30 * DAY_MS);
  stop();
  vi.advanceTimersByTime(60 * DAY_MS);
  expect(call).not.toHaveBeenCalled();
});
