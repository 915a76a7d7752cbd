// The modules of the page that need no browser, and the files of others that it contains.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { instantText, spanText, timeStep, waitText } from '../../page/axis.js';
import { line } from '../../page/commands.js';
import { binCalls, nearestCall, sameCall } from '../../page/reply.js';
import { defaultState, fromFragment, toFragment } from '../../page/state.js';
import {
  nearestStep, readDuration, sentence, sliderArguments, steps, withWord, writeDuration, writeValue,
} from '../../page/words.js';

const root = new URL('../../../', import.meta.url);
const read = (path) => readFileSync(new URL(path, root), 'utf8');

describe('uPlot', () => {
  it('is the file that the checksums name', () => {
    const folder = 'lab/page/vendor/uplot/';
    const sums = read(`${folder}SHA256SUMS`).trim().split('\n').map((row) => row.split('  '));
    for (const [sum, name] of sums) {
      const bytes = readFileSync(new URL(folder + name, root));
      assert.equal(createHash('sha256').update(bytes).digest('hex'), sum, name);
    }
    const named = [...sums.map(([, name]) => name), 'README.md', 'SHA256SUMS'];
    assert.deepEqual(readdirSync(new URL(folder, root)).sort(), named.sort());
    const version = /^# uPlot (\S+)/.exec(read(`${folder}README.md`))[1];
    assert.ok(read(`${folder}uPlot.iife.min.js`).includes(`(v${version})`), version);
  });
});

describe('the sentence of a rule', () => {
  it('says what the rule does to a key', () => {
    const sentences = {
      'FIXED 10 10': 'At most 10 calls in each window of 10 s, so up to 19 around its edge.',
      'fixed 10 1h aligned': 'At most 10 calls in each window of 1 h by the clock, so up to 20'
        + ' around its edge.',
      'SLIDING 10 10': 'About 10 calls in any 10 s: what the window before let in still counts,'
        + ' less and less.',
      'SLIDINGLOG 1 90s': 'At most 1 call in any 90 s.',
      'TOKENBUCKET 20 10 1m': '20 calls at once, then one each 6 s; a pause fills it up again.',
      'LEAKYBUCKET 10 10 10': 'One call each 1 s: up to 10 calls queue, each with its wait;'
        + ' the rest is denied.',
      'GCRA 10 300 1m COST 2': '10 units at once, then one each 200 ms; a pause brings the burst'
        + ' back.',
      'BACKOFF 3 1s 1h 1d': '3 calls free, then a wait of 1 s that doubles up to 1 h; forgotten'
        + ' after 1 d of quiet.',
      'QUOTA 9 month ZONE Europe/Berlin': 'At most 9 calls in each month of the calendar.',
      'GCRA 10 10': '',
      'GCRA 10 0 1m': '',
      'FIXED 10 soon': '',
      '10/s': '',
    };
    for (const [text, words] of Object.entries(sentences)) assert.equal(sentence(text), words);
  });
});

describe('the steps of bars', () => {
  it('hold the same number of calls in even gaps', () => {
    assert.equal(timeStep(400_000), 500_000);
    assert.equal(timeStep(400_000, 200_000), 1_000_000);
    // No step is a multiple, so the smallest is taken.
    assert.equal(timeStep(400_000, 1e6 / 7.3), 500_000);
  });
});

describe('the lines to paste', () => {
  const choice = (...rule_texts) => ({ rule_texts, command: '', policy_lines: [] });

  it('are the calls that the pages of the clients show', () => {
    const written = {
      Python: ['python', /gcra\("api".*?\)/],
      Node: ['node', /gcra\('api'.*?\)/],
      Rust: ['rust', /Rule::gcra\("api".*?\)\?/],
      Go: ['go', /throttle\.Must\(throttle\.GCRA\("api".*?\)\)/],
      Java: ['java', /Rule\.gcra\("api".*?\)\)/],
    };
    for (const [language, [page, rule]] of Object.entries(written)) {
      const text = line(language, choice('GCRA 10 10 1m'));
      const [found] = rule.exec(text);
      assert.ok(read(`docs/clients/${page}.md`).includes(found), `${page}.md has no ${found}`);
    }
  });

  it('have the form of each language for options and several rules', () => {
    const options = choice('TOKENBUCKET 10 5 90s COST 3 LEAVE 20%');
    const several = choice('FIXED 9 1d ALIGNED', 'QUOTA 99 month ZONE Europe/Berlin START 31');
    const expected = {
      Python: [
        'limiter.check(token_bucket("api", capacity=10, rate=5, period="90s"), "user:1", cost=3,'
          + ' leave="20%")',
        'limiter.check_all(fixed("api-1", 9, "1d", aligned=True).of("user:1"), quota("api-2", 99,'
          + ' "month", zone="Europe/Berlin", start=31).of("user:1"))',
      ],
      Node: [
        "await limiter.check(tokenBucket('api', 10, 5, '90s'), 'user:1',"
          + " { cost: 3, leave: '20%' })",
        "await limiter.checkAll([fixed('api-1', 9, '1d', { aligned: true }).of('user:1'),"
          + " quota('api-2', 99, 'month', { zone: 'Europe/Berlin', start: 31 }).of('user:1')])",
      ],
      Rust: [
        'limiter.check(Rule::token_bucket("api", 10, 5, "90s")?.of("user:1").cost(3)'
          + '.leave_percent(20)).await?',
        'limiter.check_all(&[Rule::fixed("api-1", 9, "1d")?.aligned()?.of("user:1"),'
          + ' Rule::quota("api-2", 99, QuotaUnit::Month)?.zone("Europe/Berlin")?.start(31)?'
          + '.of("user:1")], None).await?',
      ],
      Go: [
        'limiter.Check(ctx, throttle.Must(throttle.TokenBucket("api", 10, 5, 90*time.Second))'
          + '.Of("user:1").Cost(3).LeavePercent(20))',
        'limiter.CheckAll(ctx, []throttle.Item{throttle.Must(throttle.Fixed("api-1", 9,'
          + ' 24*time.Hour, throttle.Aligned())).Of("user:1"),'
          + ' throttle.Must(throttle.Quota("api-2", 99,'
          + ' throttle.Month, throttle.Zone("Europe/Berlin"), throttle.Start("31")))'
          + '.Of("user:1")})',
      ],
      Java: [
        'limiter.check(Rule.tokenBucket("api", 10, 5, Duration.ofSeconds(90)).of("user:1")'
          + '.cost(3).leavePercent(20));',
        'limiter.checkAll(List.of(Rule.fixed("api-1", 9, Duration.ofDays(1)).aligned()'
          + '.of("user:1"), Rule.quota("api-2", 99, CalendarUnit.MONTH)'
          + '.zone("Europe/Berlin").start("31")'
          + '.of("user:1")));',
      ],
    };
    for (const [language, [one, all]] of Object.entries(expected)) {
      assert.equal(line(language, options), one);
      assert.equal(line(language, several), all);
    }
  });

  it('say so when a client has no form for a rule', () => {
    const monday = choice('QUOTA 9 week START mon');
    assert.match(line('Rust', monday), /^\(the Rust client has no form/);
    assert.match(line('Go', monday), /throttle\.Start\("mon"\)/);
  });
});

describe('the sliders', () => {
  it('move the numbers of a rule and leave the other words as they are', () => {
    const text = 'gcra  6 10 60  COST 2';
    const found = sliderArguments(text);
    assert.deepEqual(found.map(({ name, value }) => [name, value]),
      [['burst', 6], ['rate', 10], ['period', 60e6]]);
    const [burst, , period] = found;
    assert.equal(withWord(text, burst.place, writeValue(burst, 7)), 'gcra  7 10 60  COST 2');
    const hour = writeValue(period, 3600e6);
    assert.equal(withWord(text, period.place, hour), 'gcra  6 10 3600  COST 2');
    assert.deepEqual(sliderArguments('GCRA x 10 60'), []);
    assert.deepEqual(sliderArguments('LEASE 1 2 3'), []);
  });

  it('have steps that rise by at most a factor of two', () => {
    for (const isDuration of [false, true]) {
      const values = steps({ isDuration });
      for (let at = 1; at < values.length; at += 1) {
        const factor = values[at] / values[at - 1];
        assert.ok(factor > 1 && factor <= 2.5, `${values[at - 1]} to ${values[at]}`);
      }
      const step = nearestStep({ isDuration, value: values[20] * 1.01 });
      assert.equal(step, 20);
    }
  });

  it('read and write durations in the forms of the commands', () => {
    const table = [['60', 60e6, '1m'], ['0.5', 5e5, '500ms'], ['1.5s', 1.5e6, '1500ms'],
      ['90s', 90e6, '90s'], ['2D', 172_800e6, '2d'], ['1.5ms', 1500, '1.5ms']];
    for (const [word, us, written] of table) {
      assert.equal(readDuration(word), us);
      assert.equal(writeDuration(us), written);
    }
    for (const word of ['', 'x', '-1', '1y', '1 s', '1e3']) assert.equal(readDuration(word), null);
  });
});

describe('the columns', () => {
  const columns = {
    at_us: Uint32Array.of(0, 10, 10, 10, 40, 100),
    key: Uint8Array.of(0, 1, 0, 1, 0, 1),
    allowed: Uint8Array.of(1, 1, 1, 0, 0, 2),
  };

  it('are searched for the call that is nearest in time', () => {
    const table = [[-5, 0], [4, 0], [6, 1], [10, 1], [24, 1], [26, 4], [71, 5], [999, 5]];
    for (const [us, expected] of table) assert.equal(nearestCall(columns, us), expected, `${us}`);
    assert.equal(nearestCall(columns, 12, 0), 2);
    assert.equal(nearestCall(columns, 30, 1), 1);
    assert.equal(nearestCall(columns, 30, 7), -1);
  });

  it('find the same call of another rule among calls of one instant', () => {
    const others = { at_us: Uint32Array.of(10, 10, 10, 12), key: Uint8Array.of(1, 0, 1, 1) };
    assert.equal(sameCall(columns, 1, others), 0);
    assert.equal(sameCall(columns, 3, others), 2);
    assert.equal(sameCall(columns, 2, others), 1);
    assert.equal(sameCall(columns, 5, others), 3);
  });

  it('are counted in steps of time', () => {
    const { allowed, denied } = binCalls(columns, 0, 101, 20);
    assert.deepEqual([...allowed], [3, 0, 0, 0, 0, 1]);
    assert.deepEqual([...denied], [1, 0, 1, 0, 0, 0]);
  });
});

describe('the state', () => {
  it('is the same after a link, and shorter than 400 characters by default', () => {
    const state = defaultState();
    assert.deepEqual(fromFragment(toFragment(state)), state);
    assert.ok(toFragment(state).length < 400);
    const words = { ...state, choices: [['GCRA ü 10 60']] };
    assert.deepEqual(fromFragment(toFragment(words)), words);
  });

  it('is refused when a field is out of bounds', () => {
    const { traffic } = defaultState();
    const table = [
      [{ keys: 21 }, /invalid keys: expected 1 to 20/], [{ seed: -1 }, /invalid seed/],
      [{ duration_ms: 10 }, /invalid duration/], [{ rate: '5' }, /invalid rate/],
      [{ shape: 'wave' }, /invalid traffic/], [{ retries: 'no' }, /invalid retries/],
      [{ shape: 'drawn', points: [[0, 1], [0, 2]] }, /invalid points/],
      [{ cost: 1.5 }, /invalid cost/],
    ];
    for (const [part, expected] of table) {
      const fragment = toFragment({ ...defaultState(), traffic: { ...traffic, ...part } });
      assert.throws(() => fromFragment(fragment), expected);
    }
    const choices = Array(5).fill(['FIXED 1 1']);
    assert.throws(() => fromFragment(toFragment({ ...defaultState(), choices })), /invalid rules/);
  });
});

describe('labels', () => {
  it('name spans and instants with a unit that fits', () => {
    assert.deepEqual([500_000, 15e6, 120e6, 7200e6, 86_400e6].map(spanText),
      ['500 ms', '15 s', '2 min', '2 h', '1 d']);
    assert.deepEqual([null, 0, 999, 1500, 600_000].map(waitText),
      ['none', '0 ms', '999 ms', '1.5 s', '10 min']);
    assert.equal(instantText(1_234_567), '1.234567 s');
    assert.equal(instantText(90_061_000_001), '1 d 1:01:01.000001');
  });
});
