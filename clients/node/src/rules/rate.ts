/** Rates as text: `10/minute`. */
import { type Duration, duration, integer } from './durations.js';
import { InvalidArgumentError } from './errors.js';

/** A number of units per period, as `rate` reads it from text. */
export interface Rate {
  readonly rate: number;
  readonly period: Duration;
}

/** The units of a period, in seconds. */
const UNITS: ReadonlyMap<string, bigint> = new Map(
  Object.entries({
    86400: ['d', 'day', 'days'],
    3600: ['h', 'hr', 'hour', 'hours'],
    60: ['m', 'min', 'minute', 'minutes'],
    1: ['s', 'sec', 'second', 'seconds'],
  }).flatMap(([seconds, words]) => words.map((word) => [word, BigInt(seconds)])),
);

/**
 * Reads a rate such as `10/minute`, `10 per minute`, `5/2 hours` or `20/90s`. The constructors of
 * rules take such text too.
 *
 * @param text A number from 1 to 10^12, `/` or `per`, and a period from 1 ms to 366 days: a unit
 * from second to day, a number of units, or a duration with its unit.
 * @throws InvalidArgumentError for other text. A quota counts months and years.
 *
 * @example
 * rate('5 per 2 hours'); // { rate: 5, period: '7200' }
 */
export function rate(text: string): Rate {
  const parts = typeof text === 'string' && /^(\d+)(?: per | ?\/ ?)(.+)$/.exec(text);
  if (!parts) throw refused();
  const [, units, period = ''] = parts;
  integer('rate', Number(units), 1);
  return Object.freeze({ rate: Number(units), period: duration('rate', periodOf(period)) });
}

/** Returns a rate that is given as text or as the result of `rate`. */
export function rateOf(given: string | Rate): Rate {
  return typeof given === 'object' && given !== null ? given : rate(given);
}

function periodOf(text: string): Duration {
  if (/^(?:\d+ ?)?(?:month|year)s?$/.test(text)) {
    throw new InvalidArgumentError('rate', 'at most 366 days; a quota counts months and years');
  }
  const [, count = '1', word = ''] = /^(?:(\d+) ?)?([a-z]+)$/.exec(text) ?? [];
  const seconds = UNITS.get(word);
  if (seconds !== undefined) return `${BigInt(count) * seconds}s`;
  if (!/^[\d.]+(?:ms|s|m|h|d)$/.test(text)) throw refused();
  return text;
}

function refused(): InvalidArgumentError {
  return new InvalidArgumentError('rate', 'text such as 10/minute, 5 per 2 hours or 20/90s');
}
