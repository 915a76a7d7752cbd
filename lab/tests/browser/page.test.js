// The page in a real Chromium, served by the real program.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { callAt, decode, INTEGERS } from '../../page/reply.js';
import { defaultState, fromFragment, toFragment } from '../../page/state.js';
import { openPage, startBrowser, startLab, startServer, waitUntilReady } from './fixture.js';

let lab;
let browser;

before(async () => {
  lab = await startLab();
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  await lab?.end();
});

/** Opens the page, runs a test on it, and expects no error, failed request or foreign host. */
async function onPage(options, test) {
  const { page, trouble, close } = await openPage(browser, lab.address, options);
  await test(page);
  assert.deepEqual(trouble, []);
  await close();
}

/** Returns a state with other traffic or choices than the default. */
function stateWith(traffic, choices) {
  const state = defaultState();
  return {
    ...state,
    traffic: { ...state.traffic, ...traffic },
    choices: choices ?? state.choices,
  };
}

function opened(state) {
  return { fragment: `#${toFragment(state)}` };
}

/** Returns the state that the link of the page holds. */
async function linked(page) {
  await page.getByRole('button', { name: 'Copy link' }).click();
  return fromFragment(new URL(page.url()).hash.slice(1));
}

/** Returns the calls that the program decides for a state. */
async function simulated(state) {
  const { traffic, watch, choices } = state;
  const response = await fetch(`${lab.address}/simulate`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ traffic, watch, choices: choices.map((rules) => ({ rules })) }),
  });
  assert.equal(response.status, 200);
  return decode(await response.arrayBuffer());
}

/** Moves the pointer over the chart of a choice, to a part of its width and height. */
async function hover(page, place, x, y) {
  const over = page.locator('#rules .row').nth(place).locator('.u-over');
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
  await page.locator('.tooltip:visible').waitFor();
}

/** Returns what the tooltip shows: the place of the call and its integers. */
async function tooltip(page) {
  return page.locator('.tooltip:visible').evaluate((element) => ({
    at: Number(element.dataset.at),
    atUs: Number(element.dataset.atUs),
    key: Number(element.dataset.key),
    rule: Number(element.dataset.rule),
    names: [...element.querySelectorAll('th')].map((head) => head.textContent),
    integers: [...element.querySelectorAll('td')].map((cell) => Number(cell.textContent)),
    text: element.textContent,
  }));
}

/** Returns the cells of the summary, a list for each rule. */
async function summary(page) {
  return page.locator('#summary tbody tr').evaluateAll((rows) =>
    rows.map((row) => [...row.cells].slice(2).map((cell) => cell.textContent)));
}

describe('traffic', () => {
  it('starts a drawing from the preset when a user drags on the time line', async () => {
    await onPage({}, async (page) => {
      const box = await page.locator('svg.timeline').boundingBox();
      await page.mouse.move(box.x + box.width * 0.3, box.y + 200);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.5, box.y + 30, { steps: 8 });
      await page.mouse.move(box.x + box.width * 0.7, box.y + 200, { steps: 8 });
      await page.mouse.up();
      await waitUntilReady(page);
      assert.equal(await page.getByRole('radio', { name: 'Drawn' }).isChecked(), true);
      const { traffic } = await linked(page);
      assert.equal(traffic.shape, 'drawn');
      const rate = (part) => traffic.points.reduce((best, point) =>
        (Math.abs(point[0] - part) < Math.abs(best[0] - part) ? point : best))[1];
      assert.ok(rate(0.5) > 2 * rate(0.3) && rate(0.5) > 2 * rate(0.72), `${traffic.points}`);
    });
  });

  it('moves a control point with the arrow keys', async () => {
    const points = [[0, 5], [0.5, 5], [1, 5]];
    await onPage(opened(stateWith({ shape: 'drawn', points })), async (page) => {
      await page.locator('.handle[tabindex="0"]').focus();
      await page.keyboard.press('ArrowRight');
      for (let press = 0; press < 5; press += 1) await page.keyboard.press('ArrowUp');
      await waitUntilReady(page);
      const { traffic } = await linked(page);
      assert.deepEqual([traffic.points[0], traffic.points[2]], [[0, 5], [1, 5]]);
      assert.ok(traffic.points[1][1] > 5, `${traffic.points}`);
      const [[offered]] = await summary(page);
      assert.ok(Number(offered) > 300, offered);
    });
  });

  it('shows an error of the program next to the traffic', async () => {
    await onPage(opened(stateWith({ rate: 5 })), async (page) => {
      await page.getByLabel('keys', { exact: true }).fill('21');
      await waitUntilReady(page);
      const error = await page.locator('#traffic-error').textContent();
      assert.equal(error, 'invalid keys: expected 1 to 20');
      await page.getByLabel('keys', { exact: true }).fill('20');
      await page.waitForFunction(() => document.querySelector('#traffic-error').textContent === '');
    });
  });

  it('shows the refusal of too many calls', async () => {
    const { page, close } = await openPage(browser, lab.address, opened(stateWith({ rate: 5000 })));
    assert.match(await page.locator('#traffic-error').textContent(), /100000|100,000/);
    await close();
  });
});

describe('rules', () => {
  it('decide the same herd differently', async () => {
    await onPage({}, async (page) => {
      await page.getByRole('radio', { name: 'Steady' }).check();
      await page.getByRole('radio', { name: 'Thundering herd' }).check();
      await waitUntilReady(page);
      const rows = (await summary(page)).map((cells) => cells.join());
      assert.equal(rows.length, 4);
      assert.equal(new Set(rows).size, 4, `${rows}`);
    });
  });

  it('decide other calls after a slider has rewritten a number', async () => {
    await onPage({}, async (page) => {
      const before = await summary(page);
      const slider = page.getByLabel('limit of Rule 1');
      await slider.focus();
      await page.keyboard.press('ArrowRight');
      await waitUntilReady(page);
      assert.equal(await page.getByLabel('Rule 1', { exact: true }).first().isVisible(), true);
      assert.equal(await page.locator('#rule-0-0').inputValue(), 'FIXED 12 10');
      const after = await summary(page);
      assert.notDeepEqual(after[0], before[0]);
      assert.deepEqual(after[1], before[1]);
    });
  });

  it('show the error text of the module at an invalid field', async () => {
    await onPage({}, async (page) => {
      const field = page.locator('#rule-2-0');
      await field.fill('GCRA 0 10 10');
      await page.locator('#rule-2-0[aria-invalid="true"]').waitFor();
      const described = await field.getAttribute('aria-describedby');
      const server = await startServer();
      const [expected] = server.cli(['RL.GCRA user:1 0 10 10']);
      await server.end();
      assert.equal(await page.locator(`#${described}`).textContent(), expected);
      await field.fill('GCRA 9 10 10');
      await page.waitForFunction(() => document.querySelector('[aria-invalid]') === null);
    });
  });

  it('can be added, combined in one call and removed', async () => {
    await onPage({}, async (page) => {
      assert.equal(await page.locator('#add').isDisabled(), true);
      await page.getByRole('button', { name: 'Remove Rule 2' }).click();
      await page.getByRole('button', { name: 'Remove Rule 2' }).click();
      await page.locator('#add').click();
      await page.getByRole('button', { name: '+ rule in the same call as Rule 1' }).click();
      await waitUntilReady(page);
      const { choices } = await linked(page);
      assert.deepEqual(choices, [
        ['FIXED 10 10', 'FIXED 100 1h'], ['LEAKYBUCKET 10 10 10'], ['GCRA 10 10 10'],
      ]);
      const command = page.locator('#commands code').first();
      assert.match(await command.textContent(), /^redis-cli RL\.ALL \{user:1\}:1 "FIXED 10 10/);
    });
  });
});

describe('the call under the pointer', () => {
  /** Returns the last reply of a server to the calls of one key, up to the call `at`. */
  function replay(server, results, choice, at) {
    const { key: hovered } = callAt(choice, at);
    const lines = ['FLUSHALL'];
    const command = choice.command.replaceAll('user:1', `user:${hovered + 1}`);
    for (let call = 0; call <= at; call += 1) {
      if (choice.columns.key[call] !== hovered) continue;
      const nowUs = results.start_us + choice.columns.at_us[call];
      lines.push(`RL.DEBUG CLOCK FREEZE ${nowUs}`, command);
    }
    const replies = server.cli(lines).filter((line) => line !== '');
    // The reply of an RL.ALL has a row for each rule after the number of the deciding one.
    const rules = choice.rule_texts.length;
    const last = replies.slice(rules === 1 ? -5 : -6 - 5 * rules).map(Number);
    return { integers: last.slice(0, 5), rule: rules === 1 ? 0 : last[5] - 1 };
  }

  const choices = [
    ['GCRA 6 10 60'], ['FIXED 10 10', 'SLIDINGLOG 20 1m'], ['LEAKYBUCKET 10 10 10 COST 2'],
    ['BACKOFF 3 1s 30s 5m'],
  ];

  it('has the five integers that a server returns for the same call', async () => {
    const server = await startServer();
    const places = [[0, 0.21, 0.9], [1, 0.5, 0.05], [2, 0.83, 0.7], [3, 0.4, 0.1]];
    for (const traffic of [{ shape: 'bursty', retries: 'obey' }, { shape: 'abuser', rate: 9 }]) {
      const state = stateWith(traffic, choices);
      const results = await simulated(state);
      await onPage(opened(state), async (page) => {
        for (const [place, x, y] of places) {
          await hover(page, place, x, y);
          const tip = await tooltip(page);
          const choice = results.choices[place];
          assert.deepEqual(tip.names, INTEGERS);
          const decided = callAt(choice, tip.at);
          assert.equal(decided.atUs, tip.atUs);
          const served = replay(server, results, choice, tip.at);
          assert.deepEqual(tip.integers, served.integers, `${choice.command}, call ${tip.at}`);
          assert.equal(tip.rule, served.rule);
          if (place === 1) assert.match(tip.text, /From part [12]: (FIXED|SLIDINGLOG)/);
        }
      });
    }
    await server.end();
  });

  it('appears under the other charts with the names of its integers', async () => {
    await onPage(opened(stateWith({ shape: 'bursty' }, choices)), async (page) => {
      await hover(page, 0, 0.5, 0.5);
      for (const at of [1, 2, 3]) {
        const parts = page.locator('.readout').nth(at).locator('span');
        const names = (await parts.allTextContents()).slice(1).map((text) => text.split(' ')[0]);
        assert.deepEqual(names, INTEGERS);
      }
    });
  });

  it('is the nearest one in time', async () => {
    const state = stateWith({ shape: 'steady', rate: 1 });
    const { choices: [choice] } = await simulated(state);
    await onPage(opened(state), async (page) => {
      await hover(page, 0, 0.35, 0.9);
      const { atUs } = await tooltip(page);
      const pointer = 0.35 * state.traffic.duration_ms * 1000;
      const distance = (us) => Math.abs(us - pointer);
      const least = Math.min(...Array.from(choice.columns.at_us, distance));
      // The pointer stands on a pixel, which is some 60 ms wide.
      assert.ok(distance(atUs) <= least + 120_000, `${atUs}`);
    });
  });

  it('can be reached with the keyboard alone', async () => {
    await onPage({}, async (page) => {
      const chart = page.getByRole('slider', { name: 'Calls under Rule 3' });
      const isFocused = () => chart.evaluate((element) => element === document.activeElement);
      for (let press = 0; press < 120 && !(await isFocused()); press += 1) {
        await page.keyboard.press('Tab');
      }
      assert.equal(await isFocused(), true);
      await page.keyboard.press('Home');
      for (let press = 0; press < 3; press += 1) await page.keyboard.press('ArrowRight');
      assert.equal((await tooltip(page)).at, 3);
      const text = await chart.getAttribute('aria-valuetext');
      assert.match(text, /^Call 4 of 300, allowed, at 0\.000000 s, user:1, attempt 1: allowed 1, /);
      assert.match(text, /limit 10, remaining 8, retry_after_ms 0, reset_after_ms 2000$/);
      await page.keyboard.press('+');
      assert.equal(await page.getByRole('button', { name: 'Whole time' }).isVisible(), true);
      await page.keyboard.press('0');
      await page.keyboard.press('Escape');
      assert.equal(await page.locator('.tooltip:visible').count(), 0);
      assert.equal(await page.getByRole('button', { name: 'Whole time' }).isVisible(), false);
    });
  });
});

describe('the figures of a rule', () => {
  it('distinguish calls that act at once from calls that a leaky bucket queues', async () => {
    const state = stateWith({ shape: 'bursty' }, [['LEAKYBUCKET 10 10 10'], ['GCRA 10 10 10']]);
    const { choices } = await simulated(state);
    const { allowed, retry_after_ms: waits } = choices[0].columns;
    const queued = Array.from(waits).filter((wait, at) => allowed[at] > 0 && wait > 0);
    assert.ok(queued.length > 10);
    const longest = Number((Math.max(...queued) / 1000).toFixed(2));
    await onPage(opened(state), async (page) => {
      const [first, second] = await page.locator('.figures').allTextContents();
      const words = `of them ${queued.length} after a wait of up to ${longest} s`;
      assert.ok(first.includes(words), `${first}: ${words}`);
      assert.ok(!second.includes('after a wait'), second);
    });
  });
});

describe('a link', () => {
  it('opens the same state in another browser', async () => {
    const points = [[0, 1.5], [0.25, 20], [1, 3]];
    const traffic = { shape: 'drawn', points, seed: 77, keys: 2, cost: 2 };
    const choices = [['GCRA 6 10 60'], ['FIXED 9 9', 'QUOTA 99 day']];
    const state = { ...stateWith(traffic, choices), watch: 1 };
    let first;
    let address;
    await onPage(opened(state), async (page) => {
      await page.locator('#rule-0-0').fill('GCRA 7 10 60');
      await waitUntilReady(page);
      await linked(page);
      address = page.url();
      first = await summary(page);
    });
    await onPage({ fragment: new URL(address).hash }, async (page) => {
      const changed = { ...state, choices: [['GCRA 7 10 60'], choices[1]] };
      assert.deepEqual(await linked(page), changed);
      assert.deepEqual(await summary(page), first);
      assert.equal(await page.locator('#watch').inputValue(), '1');
    });
  });

  it('that cannot be read shows a message and the default state', async () => {
    const bad = ['#x', `#${btoa('{"v":9,"t":[]}')}`, `#${toFragment(stateWith({ keys: 99 }))}`];
    for (const fragment of bad) {
      await onPage({ fragment }, async (page) => {
        const notice = await page.locator('#notice').textContent();
        assert.match(notice, /^The link cannot be opened: invalid/);
        assert.deepEqual(await linked(page), defaultState());
      });
    }
  });
});

describe('the commands', () => {
  it('are copied for the chosen language', async () => {
    const permissions = ['clipboard-read', 'clipboard-write'];
    await onPage({ permissions }, async (page) => {
      await page.getByRole('radio', { name: 'Python' }).check();
      const copyButton = page.getByRole('button', { name: 'Copy the line of Rule 3' });
      await copyButton.click();
      await page.locator('button', { hasText: 'Copied' }).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()),
        'limiter.check(gcra("api", burst=10, rate=10, period="10s"), "user:1")');
    });
  });

  it('of the policy are lines in shadow mode', async () => {
    await onPage({}, async (page) => {
      await page.getByRole('radio', { name: 'policy' }).check();
      const text = await page.locator('#commands code').first().textContent();
      assert.match(text, /^\S+ SHADOW FIXED 10 10/);
    });
  });
});
