// Steps and labels of axes, and numbers as text. Times are microseconds from the start.

const SECOND_US = 1e6;
const MINUTE_US = 60 * SECOND_US;
const HOUR_US = 60 * MINUTE_US;
const DAY_US = 24 * HOUR_US;

const TIME_STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms * 1000),
  ...[1, 2, 5, 10, 15, 30].map((s) => s * SECOND_US),
  ...[1, 2, 5, 10, 15, 30].map((m) => m * MINUTE_US),
  ...[1, 2, 3, 6, 12].map((h) => h * HOUR_US),
  ...[1, 2, 5, 10, 30, 60].map((d) => d * DAY_US),
];

/**
 * Returns the smallest step of time that is at least `leastUs` and a multiple of `gapUs`. If none
 * is at most four times as long, the smallest that is at least `leastUs`.
 */
export function timeStep(leastUs, gapUs = 0) {
  const steps = TIME_STEPS.filter((step) => step >= leastUs);
  const isEven = (step) =>
    step <= 4 * leastUs && Math.abs(step / gapUs - Math.round(step / gapUs)) < 1e-6;
  return steps.find((step) => gapUs === 0 || isEven(step)) ?? steps[0] ?? TIME_STEPS.at(-1);
}

/** Returns the multiples of a step between two instants. */
export function multiples(from, to, step) {
  const found = [];
  for (let at = Math.ceil(from / step); at * step <= to; at += 1) found.push(at * step);
  return found;
}

/** Returns a span as text: `0.5 s`, `15 min`, `2 h`. */
export function spanText(us) {
  if (us >= DAY_US && us % DAY_US === 0) return `${us / DAY_US} d`;
  if (us >= HOUR_US && us % HOUR_US === 0) return `${us / HOUR_US} h`;
  if (us >= MINUTE_US && us % MINUTE_US === 0) return `${us / MINUTE_US} min`;
  return us >= SECOND_US || us === 0 ? `${us / SECOND_US} s` : `${us / 1000} ms`;
}

/** Returns an instant as the label of an axis whose labels are `stepUs` apart. */
export function instantLabel(us, stepUs) {
  if (us === 0) return '0';
  if (stepUs < MINUTE_US && us < 10 * MINUTE_US) {
    const digits = stepUs >= SECOND_US ? 0 : stepUs >= SECOND_US / 10 ? 1 : 3;
    return `${(us / SECOND_US).toFixed(digits)} s`;
  }
  if (stepUs >= DAY_US) return `${us / DAY_US} d`;
  const days = Math.floor(us / DAY_US);
  return `${days > 0 ? `${days} d ` : ''}${clock(us % DAY_US, stepUs < MINUTE_US)}`;
}

/** Returns a time of day as h:mm, with seconds if they differ. */
function clock(us, hasSeconds) {
  const two = (value) => String(Math.floor(value)).padStart(2, '0');
  const seconds = hasSeconds ? `:${two((us % MINUTE_US) / SECOND_US)}` : '';
  return `${Math.floor(us / HOUR_US)}:${two((us % HOUR_US) / MINUTE_US)}${seconds}`;
}

/** Returns an exact instant: seconds with six decimals; after an hour also as days and hours. */
export function instantText(us) {
  const seconds = `${(us / SECOND_US).toFixed(6)} s`;
  if (us < HOUR_US) return seconds;
  const days = Math.floor(us / DAY_US);
  const micros = String(us % SECOND_US).padStart(6, '0');
  return `${days > 0 ? `${days} d ` : ''}${clock(us % DAY_US, true)}.${micros}`;
}

/** Returns milliseconds as text with a unit that fits. */
export function waitText(ms) {
  if (ms === null || ms === undefined) return 'none';
  if (ms < 1000) return `${ms} ms`;
  const units = [[DAY_US, 'd'], [HOUR_US, 'h'], [MINUTE_US, 'min'], [SECOND_US, 's']];
  const [unitUs, unit] = units.find(([us]) => ms * 1000 >= 2 * us) ?? units[3];
  return `${trimmed((ms * 1000) / unitUs)} ${unit}`;
}

function trimmed(value) {
  return String(Number(value.toFixed(2)));
}

/** Returns a whole number with separators of thousands. */
export function countText(value) {
  return value.toLocaleString('en-US');
}

/** Returns a share as per cent, with one decimal. */
export function shareText(part, whole) {
  return whole === 0 ? '0 %' : `${((100 * part) / whole).toFixed(1)} %`;
}

/** Returns 1, 2 or 5 times a power of ten: the smallest that is at least `least`. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= least * 0.999999);
}

/** Returns a short label of a number: `1.5k` for 1,500. */
export function shortText(value) {
  if (value >= 1e9) return `${trimmed(value / 1e9)}G`;
  if (value >= 1e6) return `${trimmed(value / 1e6)}M`;
  return value >= 10_000 ? `${trimmed(value / 1e3)}k` : trimmed(value);
}
