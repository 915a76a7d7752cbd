/** Validates numbers and durations, and writes them as the server reads them. */
import { InvalidArgumentError } from './errors.js';

/** A duration: a number of seconds, or a text with a unit, `500ms`, `60s`, `1h`, `7d`. */
export type Duration = number | string;

const MAX_LIMIT = 1_000_000_000_000;
const UNIT_US: Record<string, bigint> = {
  ms: 1_000n,
  s: 1_000_000n,
  m: 60_000_000n,
  h: 3_600_000_000n,
  d: 86_400_000_000n,
};
const MAX_DURATION_US = 366n * 86_400_000_000n;

/** Returns an integer from `min` to `max` as text. */
export function integer(argument: string, value: number, min: number, max = MAX_LIMIT): string {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    throw new InvalidArgumentError(argument, `an integer from ${min} to ${max}`);
  }
  return String(value);
}

/** Returns a duration in whole microseconds. */
export function microseconds(argument: string, value: Duration): bigint {
  const text = typeof value === 'number' ? plain(value) : value;
  const parts = /^(\d+)(?:\.(\d{1,6}))?(ms|s|m|h|d)?$/.exec(text);
  const unit = UNIT_US[parts?.[3] ?? 's'] as bigint;
  const scale = 1_000_000n;
  const scaled = parts ? BigInt(`${parts[1]}${(parts[2] ?? '').padEnd(6, '0')}`) * unit : 0n;
  if (scaled % scale !== 0n || scaled < 1_000n * scale || scaled > MAX_DURATION_US * scale) {
    throw new InvalidArgumentError(
      argument,
      'a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h',
    );
  }
  return scaled / scale;
}

/** Writes a number without an exponent, rounded to the microsecond. */
function plain(value: number): string {
  if (!Number.isFinite(value)) return '';
  return value.toFixed(6).replace(/\.?0+$/, '');
}

/** Writes a duration as the server reads it: whole seconds without a unit, otherwise in ms. */
export function duration(argument: string, value: Duration): string {
  const us = microseconds(argument, value);
  if (us % 1_000_000n === 0n) return String(us / 1_000_000n);
  const [whole, rest] = [us / 1000n, us % 1000n];
  const decimals = rest === 0n ? '' : `.${String(rest).padStart(3, '0').replace(/0+$/, '')}`;
  return `${whole}${decimals}ms`;
}
