// The lines to paste: the command for redis-cli, the call of each client, and the policy.

import { readDuration, readRule, splitDuration, writeDuration } from './words.js';

/** The languages, in the order of the buttons. */
export const LANGUAGES = ['redis-cli', 'Python', 'Node', 'Rust', 'Go', 'Java', 'policy'];

const NAMES = {
  FIXED: ['fixed', 'Fixed'],
  SLIDING: ['sliding', 'Sliding'],
  SLIDINGLOG: ['sliding_log', 'SlidingLog'],
  TOKENBUCKET: ['token_bucket', 'TokenBucket'],
  LEAKYBUCKET: ['leaky_bucket', 'LeakyBucket'],
  GCRA: ['gcra', 'GCRA'],
  BACKOFF: ['backoff', 'Backoff'],
  QUOTA: ['quota', 'Quota'],
};

const GO_UNITS = { d: 'Hour', h: 'Hour', m: 'Minute', s: 'Second', ms: 'Millisecond' };
const JAVA_UNITS = { d: 'Days', h: 'Hours', m: 'Minutes', s: 'Seconds', ms: 'Millis' };

function camel(name) {
  return name.replace(/_(.)/g, (_, char) => char.toUpperCase());
}

function pascal(word) {
  return word[0].toUpperCase() + word.slice(1).toLowerCase();
}

function goDuration(us) {
  const { count, unit } = splitDuration(us);
  if (!Number.isInteger(count)) return `${us}*time.Microsecond`;
  const factor = unit === 'd' ? 24 * count : count;
  return factor === 1 ? `time.${GO_UNITS[unit]}` : `${factor}*time.${GO_UNITS[unit]}`;
}

function javaDuration(us) {
  const { count, unit } = splitDuration(us);
  if (!Number.isInteger(count)) return `Duration.ofNanos(${us * 1000}L)`;
  return `Duration.of${JAVA_UNITS[unit]}(${count})`;
}

/** Returns a number of Java, which ends with L above the range of an int. */
function javaNumber(word) {
  return Number(word) > 2 ** 31 - 1 ? `${word}L` : word;
}

/** Returns each argument of a rule in a language: `number`, `duration` and `unit` write one. */
function values(rule, { number = String, duration, unit }) {
  return Object.entries(rule.arguments).map(([name, word]) => {
    if (name === 'unit') return [name, unit(word.toLowerCase())];
    const isNumber = ['limit', 'capacity', 'burst', 'rate', 'attempts'].includes(name);
    return [name, isNumber ? number(word) : duration(readDuration(word))];
  });
}

function isPercent(leave) {
  return leave.endsWith('%');
}

/** Returns the calls on an item for the options of a rule: `.cost(3).leave(2)`. */
function itemCalls({ cost, leave }, name, quote) {
  const calls = [];
  if (cost !== undefined && cost !== '1') calls.push(`.${name('cost')}(${cost})`);
  if (leave !== undefined && isPercent(leave)) {
    calls.push(quote === null
      ? `.${name('leave_percent')}(${leave.slice(0, -1)})`
      : `.${name('leave')}(${quote}${leave}${quote})`);
  } else if (leave !== undefined) calls.push(`.${name('leave')}(${leave})`);
  return calls.join('');
}

/** Returns the options that a call of Python or Node has next to the subject. */
function callOptions({ cost, leave, partial }, text) {
  const options = [];
  if (cost !== undefined && cost !== '1') options.push(['cost', cost]);
  if (leave !== undefined) options.push(['leave', isPercent(leave) ? text(leave) : leave]);
  if (partial) options.push(['partial', true]);
  return options;
}

function python(rules) {
  const text = (value) => `"${value}"`;
  const rule = (parsed, name) => {
    const { aligned, slots, zone, start } = parsed.options;
    const all = values(parsed, { duration: (us) => text(writeDuration(us)), unit: text });
    const isNamed = !['limit', 'attempts'].includes(all[0][0]);
    const written = all.map(([key, value]) => (isNamed ? `${key}=${value}` : value));
    if (aligned) written.push('aligned=True');
    if (slots) written.push(`slots=${slots}`);
    if (zone) written.push(`zone=${text(zone)}`);
    if (start) written.push(`start=${start}`);
    return `${NAMES[parsed.algorithm][0]}(${[text(name), ...written].join(', ')})`;
  };
  if (rules.length === 1) {
    const options = callOptions(rules[0].options, text)
      .map(([key, value]) => `, ${key}=${value === true ? 'True' : value}`);
    return `limiter.check(${rule(rules[0], 'api')}, "user:1"${options.join('')})`;
  }
  const items = rules.map((parsed, at) =>
    `${rule(parsed, `api-${at + 1}`)}.of("user:1")${itemCalls(parsed.options, String, '"')}`);
  return `limiter.check_all(${items.join(', ')})`;
}

function node(rules) {
  const text = (value) => `'${value}'`;
  const rule = (parsed, name) => {
    const { aligned, slots, zone, start } = parsed.options;
    const all = values(parsed, { duration: (us) => text(writeDuration(us)), unit: text });
    const more = [];
    if (aligned) more.push('aligned: true');
    if (slots) more.push(`slots: ${slots}`);
    if (zone) more.push(`zone: ${text(zone)}`);
    if (start) more.push(`start: ${/^\d+$/.test(start) ? start : text(start)}`);
    const options = more.length > 0 ? [`{ ${more.join(', ')} }`] : [];
    const written = [text(name), ...all.map(([, value]) => value), ...options];
    return `${camel(NAMES[parsed.algorithm][0])}(${written.join(', ')})`;
  };
  if (rules.length === 1) {
    const options = callOptions(rules[0].options, text).map(([key, value]) => `${key}: ${value}`);
    const last = options.length > 0 ? `, { ${options.join(', ')} }` : '';
    return `await limiter.check(${rule(rules[0], 'api')}, 'user:1'${last})`;
  }
  const items = rules.map((parsed, at) =>
    `${rule(parsed, `api-${at + 1}`)}.of('user:1')${itemCalls(parsed.options, String, "'")}`);
  return `await limiter.checkAll([${items.join(', ')}])`;
}

function rust(rules) {
  const text = (value) => `"${value}"`;
  const rule = (parsed, name) => {
    const { aligned, slots, zone, start } = parsed.options;
    const all = values(parsed, {
      duration: (us) => text(writeDuration(us)),
      unit: (word) => `QuotaUnit::${pascal(word)}`,
    });
    const written = [text(name), ...all.map(([, value]) => value)].join(', ');
    const more = [
      aligned ? '.aligned()?' : '',
      slots ? `.slots(${slots})?` : '',
      zone ? `.zone(${text(zone)})?` : '',
      start ? `.start(${start})?` : '',
    ];
    return `Rule::${NAMES[parsed.algorithm][0]}(${written})?${more.join('')}`;
  };
  const item = (parsed, name) => {
    const partial = parsed.options.partial ? '.partial()' : '';
    return `${rule(parsed, name)}.of("user:1")${itemCalls(parsed.options, String, null)}${partial}`;
  };
  if (rules.length === 1) return `limiter.check(${item(rules[0], 'api')}).await?`;
  const items = rules.map((parsed, at) => item(parsed, `api-${at + 1}`));
  return `limiter.check_all(&[${items.join(', ')}], None).await?`;
}

function go(rules) {
  const text = (value) => `"${value}"`;
  const rule = (parsed, name) => {
    const { aligned, slots, zone, start } = parsed.options;
    const unit = (word) => `throttle.${pascal(word)}`;
    const all = values(parsed, { duration: goDuration, unit });
    const written = [text(name), ...all.map(([, value]) => value)];
    if (aligned) written.push('throttle.Aligned()');
    if (slots) written.push(`throttle.Slots(${slots})`);
    if (zone) written.push(`throttle.Zone(${text(zone)})`);
    if (start) written.push(`throttle.Start(${text(start)})`);
    return `throttle.Must(throttle.${NAMES[parsed.algorithm][1]}(${written.join(', ')}))`;
  };
  const method = (name) => name.split('_').map(pascal).join('');
  const item = (parsed, name) =>
    `${rule(parsed, name)}.Of("user:1")${itemCalls(parsed.options, method, null)}`;
  if (rules.length === 1) {
    const partial = rules[0].options.partial ? ', throttle.Partial()' : '';
    return `limiter.Check(ctx, ${item(rules[0], 'api')}${partial})`;
  }
  const items = rules.map((parsed, at) => item(parsed, `api-${at + 1}`));
  return `limiter.CheckAll(ctx, []throttle.Item{${items.join(', ')}})`;
}

function java(rules) {
  const text = (value) => `"${value}"`;
  const rule = (parsed, name) => {
    const { aligned, slots, zone, start } = parsed.options;
    const all = values(parsed, {
      number: javaNumber,
      duration: javaDuration,
      unit: (word) => `CalendarUnit.${word.toUpperCase()}`,
    });
    const written = [text(name), ...all.map(([, value]) => value)].join(', ');
    const more = [
      aligned ? '.aligned()' : '',
      slots ? `.slots(${slots})` : '',
      zone ? `.zone(${text(zone)})` : '',
      start ? `.start(${text(start)})` : '',
    ];
    return `Rule.${camel(NAMES[parsed.algorithm][0])}(${written})${more.join('')}`;
  };
  const item = (parsed, name) => {
    const { partial, cost, leave } = parsed.options;
    const calls = itemCalls({ cost: javaNumber(cost), leave: javaNumber(leave) }, camel, null);
    return `${rule(parsed, name)}.of("user:1")${calls}${partial ? '.partial()' : ''}`;
  };
  if (rules.length === 1) return `limiter.check(${item(rules[0], 'api')});`;
  const items = rules.map((parsed, at) => item(parsed, `api-${at + 1}`));
  return `limiter.checkAll(List.of(${items.join(', ')}));`;
}

const CLIENTS = { Python: python, Node: node, Rust: rust, Go: go, Java: java };

/** Returns true if a client of this language has no form for a rule. */
function isMissing(language, { algorithm, options }) {
  const isWeekday = algorithm === 'QUOTA' && /^[a-z]+$/i.test(options.start ?? '');
  return isWeekday && (language === 'Python' || language === 'Rust');
}

/** Returns the line of a choice in a language. The choice is one of the server's response. */
export function line(language, choice) {
  if (language === 'redis-cli') return `redis-cli ${choice.command}`;
  if (language === 'policy') return choice.policy_lines.join('\n');
  const rules = choice.rule_texts.map(readRule);
  if (rules.some((rule) => rule === null || isMissing(language, rule))) {
    return `(the ${language} client has no form for this rule: use a policy)`;
  }
  return CLIENTS[language](rules);
}
