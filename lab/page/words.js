// The words of a rule: the names of its arguments, durations, and the values of the sliders.

const ARGUMENTS = {
  FIXED: ['limit', 'window'],
  SLIDING: ['limit', 'window'],
  SLIDINGLOG: ['limit', 'window'],
  TOKENBUCKET: ['capacity', 'rate', 'period'],
  LEAKYBUCKET: ['capacity', 'rate', 'period'],
  GCRA: ['burst', 'rate', 'period'],
  BACKOFF: ['attempts', 'base', 'max', 'forget'],
  QUOTA: ['limit'],
};

export const ALGORITHMS = Object.keys(ARGUMENTS);

const DURATIONS = new Set(['window', 'period', 'base', 'max', 'forget']);

const UNITS_US = { d: 86_400e6, h: 3600e6, m: 60e6, s: 1e6, ms: 1e3 };

/** The steps of a slider for units: close to a logarithmic scale, up to a million. */
const NUMBER_STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 9];
for (let decade = 10; decade < 1e6; decade *= 10) {
  for (const step of [10, 12, 15, 20, 25, 30, 40, 50, 60, 80]) {
    NUMBER_STEPS.push((step * decade) / 10);
  }
}
NUMBER_STEPS.push(1e6);

/** The steps of a slider for durations, in microseconds: 100 ms to a year. */
const DURATION_STEPS = [
  ...[0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45].map((s) => s * 1e6),
  ...[1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45].map((m) => m * 60e6),
  ...[1, 2, 3, 4, 6, 8, 12].map((h) => h * 3600e6),
  ...[1, 2, 3, 5, 7, 14, 30, 60, 90, 180, 365].map((d) => d * 86_400e6),
];

/** Returns a duration in microseconds, or null if the word is not a duration. */
export function readDuration(word) {
  const match = /^(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)?$/i.exec(word);
  if (match === null) return null;
  return Math.round(Number(match[1]) * UNITS_US[(match[2] ?? 's').toLowerCase()]);
}

/** Returns a duration as a number and its unit: the largest of which it is a whole number. */
export function splitDuration(us) {
  const unit = Object.keys(UNITS_US).find((name) => us % UNITS_US[name] === 0) ?? 'ms';
  return { count: us / UNITS_US[unit], unit };
}

/** Returns a duration as a word, such as `90s` or `1h`. */
export function writeDuration(us) {
  const { count, unit } = splitDuration(us);
  return `${count}${unit}`;
}

/** Returns the words of a rule, each with its place in the text. */
function words(text) {
  return Array.from(text.matchAll(/\S+/g), (match) => ({ word: match[0], at: match.index }));
}

/**
 * Returns the numbers of a rule that a slider can move: the name of the argument, the place of its
 * word, and its value, in units or in microseconds.
 */
export function sliderArguments(text) {
  const [algorithm, ...rest] = words(text);
  const names = ARGUMENTS[algorithm?.word.toUpperCase()] ?? [];
  const found = [];
  for (const [at, name] of names.entries()) {
    const word = rest[at]?.word ?? '';
    const isDuration = DURATIONS.has(name);
    const isNumber = /^\d{1,13}$/.test(word);
    const value = isDuration ? readDuration(word) : isNumber ? Number(word) : null;
    if (value === null || value === 0) return [];
    found.push({ name, place: at + 1, value, isDuration, hasUnit: /[a-z]$/i.test(word) });
  }
  return found;
}

/** Returns the steps of the slider of an argument. */
export function steps({ isDuration }) {
  return isDuration ? DURATION_STEPS : NUMBER_STEPS;
}

/** Returns the index of the step that is nearest to a value, on a logarithmic scale. */
export function nearestStep(argument) {
  const distance = (step) => Math.abs(Math.log(step / argument.value));
  const all = steps(argument);
  return all.reduce((best, step, at) => (distance(step) < distance(all[best]) ? at : best), 0);
}

/** Returns the word of a value. A duration keeps its form: with a unit, or plain seconds. */
export function writeValue({ isDuration, hasUnit }, value) {
  if (!isDuration) return String(value);
  return hasUnit ? writeDuration(value) : String(value / 1e6);
}

/** Returns the text of a rule in which the word at `place` is replaced. */
export function withWord(text, place, replacement) {
  const { word, at } = words(text)[place];
  return text.slice(0, at) + replacement + text.slice(at + word.length);
}

/** Returns a rule in its parts: the algorithm, the arguments by name, and the options. */
export function readRule(text) {
  const [algorithm, ...rest] = words(text).map(({ word }) => word);
  const names = ARGUMENTS[algorithm?.toUpperCase()];
  if (names === undefined) return null;
  const rule = { algorithm: algorithm.toUpperCase(), arguments: {}, options: {} };
  for (const name of names) rule.arguments[name] = rest.shift();
  if (rule.algorithm === 'QUOTA') rule.arguments.unit = rest.shift();
  while (rest.length > 0) {
    const option = rest.shift().toLowerCase();
    const isFlag = option === 'aligned' || option === 'partial';
    rule.options[option] = isFlag ? true : rest.shift();
  }
  return rule;
}

/** Returns a duration as a sentence has it: `10 s`, `1 h`. */
function spoken(word) {
  const us = readDuration(word ?? '');
  if (us === null) return null;
  const { count, unit } = splitDuration(us);
  return `${count} ${unit}`;
}

/** Returns the time in which one of `rate` units of a period comes back. */
function gap(rate, period) {
  const us = readDuration(period ?? '') / Number(rate);
  const units = Object.entries(UNITS_US).find(([, size]) => us >= size) ?? ['ms', 1e3];
  return `${Number((us / units[1]).toPrecision(3))} ${units[0]}`;
}

/** The sentence of each algorithm, from its arguments and options. `n` is calls or units. */
const SENTENCES = {
  FIXED: ({ limit, window }, { aligned }, n) => (aligned
    ? `At most ${n(limit)} in each window of ${spoken(window)} by the clock, so up to `
      + `${2 * limit} around its edge.`
    : `At most ${n(limit)} in each window of ${spoken(window)}, so up to ${2 * limit - 1} around `
      + 'its edge.'),
  SLIDING: ({ limit, window }, _, n) =>
    `About ${n(limit)} in any ${spoken(window)}: what the window before let in still counts, `
      + 'less and less.',
  SLIDINGLOG: ({ limit, window }, _, n) => `At most ${n(limit)} in any ${spoken(window)}.`,
  TOKENBUCKET: ({ capacity, rate, period }, _, n) =>
    `${n(capacity)} at once, then one each ${gap(rate, period)}; a pause fills it up again.`,
  LEAKYBUCKET: ({ capacity, rate, period }, _, n) =>
    `One call each ${gap(rate, period)}: up to ${n(capacity)} queue, each with its wait; `
      + 'the rest is denied.',
  GCRA: ({ burst, rate, period }, _, n) =>
    `${n(burst)} at once, then one each ${gap(rate, period)}; a pause brings the burst back.`,
  BACKOFF: ({ attempts, base, max, forget }, _, n) =>
    `${n(attempts)} free, then a wait of ${spoken(base)} that doubles up to ${spoken(max)}; `
      + `forgotten after ${spoken(forget)} of quiet.`,
  QUOTA: ({ limit, unit }, _, n) => `At most ${n(limit)} in each ${unit} of the calendar.`,
};

/** Returns what a rule does to each key, in a sentence; empty for an invalid rule. */
export function sentence(text) {
  const rule = readRule(text);
  if (rule === null || Object.values(rule.arguments).some((word) => word === undefined)) return '';
  const many = (count) => {
    const noun = 'cost' in rule.options ? 'unit' : 'call';
    return `${count} ${noun}${Number(count) === 1 ? '' : 's'}`;
  };
  const words = SENTENCES[rule.algorithm](rule.arguments, rule.options, many);
  return /null|NaN|Infinity/.test(words) ? '' : words;
}
