/** Validates numbers and durations, and writes them as the server reads them. */
import { InvalidArgumentError } from './errors.js';

/**
 * A duration from 1 ms to 366 days: a number of seconds, or a text with a unit, `500ms`, `60s`,
 * `1h`, `7d`. It is a whole number of microseconds, and is never rounded.
 */
export type Duration = number | string;

/** The largest limit, in units. */
export const MAX_LIMIT = 1_000_000_000_000;
const UNIT_US: Record<string, bigint> = {
  ms: 1_000n,
  s: 1_000_000n,
  m: 60_000_000n,
  h: 3_600_000_000n,
  d: 86_400_000_000n,
};
/** The longest duration, 366 days, in ms. */
export const LONGEST_MS = 31_622_400_000;
const MAX_DURATION_US = BigInt(LONGEST_MS) * 1000n;

/** Returns true for a number that a call can cost. */
export function isCost(value: unknown): value is number {
  return isInteger(value, 0, MAX_LIMIT);
}

function isInteger(value: unknown, min: number, max: number): boolean {
  return Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
}

/** Returns an integer from `min` to `max` as text. */
export function integer(argument: string, value: number, min: number, max = MAX_LIMIT): string {
  if (!isInteger(value, min, max)) {
    throw new InvalidArgumentError(argument, `an integer from ${min} to ${max}`);
  }
  return String(value);
}

/**
 * Returns a duration in microseconds.
 *
 * @throws InvalidArgumentError for a fraction of a microsecond, which is never rounded.
 */
export function microseconds(argument: string, value: Duration): bigint {
  const us = typeof value === 'number' ? ofNumber(value) : ofText(value);
  if (us === undefined || us < 1000n || us > MAX_DURATION_US) {
    throw new InvalidArgumentError(
      argument,
      'whole microseconds from 1ms to 366d, such as 60, 0.5, 500ms or 1h',
    );
  }
  return us;
}

/** A sum such as 0.1 + 0.2 is not exactly the number that it stands for. */
const NOISE_US = 0.01;

function ofNumber(seconds: number): bigint | undefined {
  const us = Math.round(seconds * 1e6);
  const isWhole = Math.abs(seconds * 1e6 - us) <= NOISE_US;
  return isWhole && Number.isSafeInteger(us) ? BigInt(us) : undefined;
}

function ofText(text: string): bigint | undefined {
  const parts = typeof text === 'string' && /^(\d+)(?:\.(\d{1,6}))?(ms|s|m|h|d)?$/.exec(text);
  if (!parts) return undefined;
  const [, whole = '', decimals = '', unit = 's'] = parts;
  const scale = 1_000_000n;
  const scaled = BigInt(whole + decimals.padEnd(6, '0')) * (UNIT_US[unit] as bigint);
  return scaled % scale === 0n ? scaled / scale : undefined;
}

/** Writes a duration as the server reads it: whole seconds without a unit, otherwise in ms. */
export function duration(argument: string, value: Duration): string {
  const us = microseconds(argument, value);
  if (us % 1_000_000n === 0n) return String(us / 1_000_000n);
  const [whole, rest] = [us / 1000n, us % 1000n];
  const decimals = rest === 0n ? '' : `.${String(rest).padStart(3, '0').replace(/0+$/, '')}`;
  return `${whole}${decimals}ms`;
}
