// The state of the page: the traffic, the watched key and the rules. A link holds it in its
// fragment, as compact JSON in base64url.
//
//   {"v": 1, "t": [shape, duration_ms, rate, seed, keys, cost, retries], "p": [[0, 5], [1, 9]],
//    "w": watched key, "r": [["GCRA 6 10 60"], ["FIXED 8 60", "QUOTA 9 day"]]}
//
// Only drawn traffic has the control points "p". A link never holds calls.

const VERSION = 1;
const FRAGMENT_MAX_CHARS = 60_000;
const MAX_COST = 1e12;

export const CHOICES_MAX = 4;
export const RULES_MAX = 16;
export const KEYS_MAX = 20;
export const POINTS_MAX = 200;
export const DAY_MS = 86_400_000;

export const SHAPES = new Map([
  ['steady', 'Steady'],
  ['bursty', 'Bursty'],
  ['greedy', 'Greedy client'],
  ['day', 'Day curve'],
  ['herd', 'Thundering herd'],
  ['abuser', 'One abuser'],
  ['drawn', 'Drawn'],
]);

export const RETRIES = new Map([
  ['none', 'none'],
  ['obey', 'after retry_after_ms'],
  ['hammer', 'every 100 ms'],
]);

/** Returns the state of a page that is opened without a link. */
export function defaultState() {
  return {
    traffic: {
      shape: 'herd',
      points: [],
      duration_ms: 60_000,
      rate: 5,
      seed: 1,
      keys: 3,
      cost: 1,
      retries: 'none',
    },
    watch: 0,
    choices: [['FIXED 10 10'], ['SLIDING 10 10'], ['GCRA 10 10 10'], ['LEAKYBUCKET 10 10 10']],
  };
}

function expect(is, name, expected) {
  if (!is) throw new Error(`invalid ${name}: expected ${expected}`);
}

function isWhole(value, min, max) {
  return Number.isSafeInteger(value) && value >= min && value <= max;
}

function isNumber(value, min, max) {
  return typeof value === 'number' && value >= min && value <= max;
}

function checkTraffic(traffic) {
  const { shape, points, duration_ms, rate, seed, keys, cost, retries } = traffic;
  expect(SHAPES.has(shape), 'traffic', [...SHAPES.keys()].join(', '));
  expect(isWhole(duration_ms, 1000, 366 * DAY_MS), 'duration', '1 second to 366 days');
  expect(isNumber(rate, 0, 1e9), 'rate', 'calls per second, 0 to 1000000000');
  expect(isWhole(seed, 0, 2 ** 32 - 1), 'seed', '0 to 4294967295');
  expect(isWhole(keys, 1, KEYS_MAX), 'keys', `1 to ${KEYS_MAX}`);
  expect(isWhole(cost, 0, MAX_COST), 'cost', '0 to 1000000000000');
  expect(RETRIES.has(retries), 'retries', [...RETRIES.keys()].join(', '));
  if (shape !== 'drawn') return;
  const isPoint = (point, at) =>
    Array.isArray(point) && point.length === 2 && isNumber(point[0], 0, 1) &&
    isNumber(point[1], 0, 1e9) && (at === 0 || point[0] > points[at - 1][0]);
  const isLine = Array.isArray(points) && points.length >= 2 && points.length <= POINTS_MAX;
  expect(isLine && points.every(isPoint), 'points', `2 to ${POINTS_MAX} rising pairs`);
}

/** Throws an error that names the first field of a state that is out of bounds. */
export function checkState({ traffic, watch, choices }) {
  checkTraffic(traffic);
  expect(isWhole(watch, 0, traffic.keys - 1), 'watched key', 'one of the keys');
  const isText = (text) => typeof text === 'string' && text.length <= 400;
  const isChoice = (rules) =>
    Array.isArray(rules) && rules.length >= 1 && rules.length <= RULES_MAX && rules.every(isText);
  const isList = Array.isArray(choices) && choices.length >= 1 && choices.length <= CHOICES_MAX;
  expect(isList && choices.every(isChoice), 'rules', `1 to ${CHOICES_MAX} lists of texts`);
}

function toBase64Url(text) {
  const bytes = new TextEncoder().encode(text);
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join('');
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

function fromBase64Url(text) {
  const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}

/** Returns the fragment of a state, without the `#`. */
export function toFragment({ traffic, watch, choices }) {
  const { shape, points, duration_ms, rate, seed, keys, cost, retries } = traffic;
  const packed = {
    v: VERSION,
    t: [shape, duration_ms, rate, seed, keys, cost, retries],
    p: shape === 'drawn' ? points : undefined,
    w: watch,
    r: choices,
  };
  return toBase64Url(JSON.stringify(packed));
}

/** Returns the state of a fragment without the `#`. Throws an error that says what is wrong. */
export function fromFragment(fragment) {
  expect(fragment.length <= FRAGMENT_MAX_CHARS, 'link', `at most ${FRAGMENT_MAX_CHARS} characters`);
  let packed;
  try {
    packed = JSON.parse(fromBase64Url(fragment));
  } catch {
    throw new Error('invalid link: expected the text that this page puts after the #');
  }
  const isState = packed !== null && typeof packed === 'object' && Array.isArray(packed.t);
  expect(isState && packed.v === VERSION, 'link', `version ${VERSION} of a state`);
  const [shape, duration_ms, rate, seed, keys, cost, retries] = packed.t;
  const points = packed.p ?? [];
  const state = {
    traffic: { shape, points, duration_ms, rate, seed, keys, cost, retries },
    watch: packed.w,
    choices: packed.r,
  };
  checkState(state);
  return state;
}
