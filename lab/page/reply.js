// The response of POST /simulate: a JSON header, then columns of numbers. A column is a view of the
// received bytes: no call is left out or copied.

/** The five integers of a reply, in their order. */
export const INTEGERS = ['allowed', 'limit', 'remaining', 'retry_after_ms', 'reset_after_ms'];

const TYPES = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f64: Float64Array,
};

/** Decodes the bytes of a response. The columns of each choice become typed arrays. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = 4 + length;
  // A typed array must start at a multiple of the size of its numbers.
  const columns = start % 8 === 0 ? buffer : buffer.slice(start);
  const base = columns === buffer ? start : 0;
  const view = ({ type, offset }, count) => new TYPES[type](columns, base + offset, count);
  for (const choice of header.choices) {
    if (choice.error !== undefined) continue;
    for (const name of Object.keys(choice.columns)) {
      choice.columns[name] = view(choice.columns[name], choice.calls);
    }
    choice.level.rules = choice.level.rules.map((level) => view(level, level.count));
  }
  return header;
}

/** Returns the index of the first call at or after an instant: a binary search. */
export function firstAtOrAfter(atUs, instantUs) {
  let low = 0;
  let high = atUs.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (atUs[middle] < instantUs) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Returns the index of the call that is nearest to an instant, of one key if `key` is given, or -1
 * if there is no call. Of calls at the same distance it returns the first.
 */
export function nearestCall({ at_us: atUs, key: keys }, instantUs, key) {
  const from = firstAtOrAfter(atUs, instantUs);
  const isOfKey = (at) => key === undefined || keys[at] === key;
  let after = from;
  while (after < atUs.length && !isOfKey(after)) after += 1;
  let before = from - 1;
  while (before >= 0 && !isOfKey(before)) before -= 1;
  if (after === atUs.length && before < 0) return -1;
  if (after === atUs.length) return firstOfInstant(atUs, before, isOfKey);
  if (before < 0 || atUs[after] - instantUs < instantUs - atUs[before]) return after;
  return firstOfInstant(atUs, before, isOfKey);
}

function firstOfInstant(atUs, at, isOfKey) {
  let first = at;
  for (let other = at; other >= 0 && atUs[other] === atUs[at]; other -= 1) {
    if (isOfKey(other)) first = other;
  }
  return first;
}

/**
 * Returns the index of a call in the columns of another choice: the same call if that choice has
 * it, otherwise the nearest one of its key. Only retries differ between choices.
 */
export function sameCall(columns, at, others) {
  const { at_us: atUs, key: keys } = columns;
  const instant = atUs[at];
  let before = 0;
  for (let other = at - 1; other >= 0 && atUs[other] === instant; other -= 1) {
    if (keys[other] === keys[at]) before += 1;
  }
  let found = firstAtOrAfter(others.at_us, instant);
  for (; others.at_us[found] === instant; found += 1) {
    if (others.key[found] !== keys[at]) continue;
    if (before === 0) return found;
    before -= 1;
  }
  return nearestCall(others, instant, keys[at]);
}

/** Returns one call: its place, instant, key, attempt, five integers and deciding rule. */
export function callAt(choice, at) {
  const { columns } = choice;
  return {
    at,
    atUs: columns.at_us[at],
    key: columns.key[at],
    attempt: columns.attempt[at],
    integers: INTEGERS.map((name) => columns[name][at]),
    rule: columns.rule[at],
  };
}

/** Counts the allowed and denied calls in steps of `stepUs` from `fromUs` to `toUs`. */
export function binCalls({ at_us: atUs, allowed }, fromUs, toUs, stepUs) {
  const count = Math.max(1, Math.ceil((toUs - fromUs) / stepUs));
  const bins = { allowed: new Uint32Array(count), denied: new Uint32Array(count) };
  const end = firstAtOrAfter(atUs, toUs);
  for (let at = firstAtOrAfter(atUs, fromUs); at < end; at += 1) {
    const bin = ((atUs[at] - fromUs) / stepUs) | 0;
    if (allowed[at] > 0) bins.allowed[bin] += 1;
    else bins.denied[bin] += 1;
  }
  return bins;
}

/** Counts the calls without retries in each step of the duration. */
export function binOffered({ at_us: atUs, attempt }, durationUs, stepUs) {
  const bins = new Uint32Array(Math.max(1, Math.ceil(durationUs / stepUs)));
  for (let at = 0; at < atUs.length; at += 1) {
    if (attempt[at] === 1) bins[Math.min(bins.length - 1, Math.floor(atUs[at] / stepUs))] += 1;
  }
  return bins;
}
