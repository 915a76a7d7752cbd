// The results: the call under the pointer, the figures of each choice, and tables for readers.

import { barStep } from './charts.js';
import { countText, instantText, shareText, spanText, waitText } from './axis.js';
import { make } from './dom.js';
import { binCalls, INTEGERS } from './reply.js';
import { choiceName } from './rules.js';

const MEANINGS = {
  allowed: '1 yes, 0 no; with PARTIAL the units granted',
  limit: 'the limit of the rule',
  remaining: 'units left',
  retry_after_ms: 'the wait; -1: never',
  reset_after_ms: 'until the full allowance is back',
};

/** Returns one call as a sentence, for a screen reader. */
export function callText(call, choice) {
  const state = call.integers[0] > 0 ? 'allowed' : 'denied';
  const integers = INTEGERS.map((name, at) => `${name} ${call.integers[at]}`).join(', ');
  return `Call ${call.at + 1} of ${choice.calls}, ${state}, at ${instantText(call.atUs)},`
    + ` user:${call.key + 1}, attempt ${call.attempt}: ${integers}${ruleText(call, choice)}`;
}

function ruleText(call, choice) {
  return choice.rule_texts.length > 1 ? `, from part ${call.rule + 1}` : '';
}

/** Shows the exact call in a tooltip at `left` pixels of a figure. */
export function showTooltip(tooltip, call, choice, left, width) {
  const isAllowed = call.integers[0] > 0;
  const head = make(
    'p',
    { class: isAllowed ? 'is-allowed' : 'is-denied' },
    make('strong', {}, isAllowed ? 'Allowed' : 'Denied'),
    ` user:${call.key + 1}, attempt ${call.attempt}`,
  );
  const rows = INTEGERS.map((name, at) => make(
    'tr',
    { title: MEANINGS[name] },
    make('th', { scope: 'row' }, name),
    make('td', { 'data-integer': name }, String(call.integers[at])),
  ));
  const from = choice.rule_texts.length > 1
    ? make('p', {}, `From part ${call.rule + 1}: ${choice.rule_texts[call.rule]}`)
    : null;
  const place = `Call ${countText(call.at + 1)} of ${countText(choice.calls)}`;
  tooltip.replaceChildren(...[
    make('p', { class: 'when' }, make('span', {}, instantText(call.atUs)), make('span', {}, place)),
    head,
    make('table', {}, make('tbody', {}, ...rows)),
    from,
  ].filter((part) => part !== null));
  Object.assign(tooltip.dataset, { at: call.at, atUs: call.atUs, key: call.key, rule: call.rule });
  tooltip.hidden = false;
  const { offsetWidth } = tooltip;
  const isRight = left + 14 + offsetWidth <= width;
  const place_px = isRight ? left + 14 : Math.max(0, left - 14 - offsetWidth);
  tooltip.style.transform = `translateX(${Math.round(place_px)}px)`;
}

/** Shows the reply of a call under its chart, for the charts that the pointer is not over. */
export function showReadout(readout, call) {
  if (call === null) {
    readout.replaceChildren();
    return;
  }
  const color = call.integers[0] > 0 ? 'is-allowed' : 'is-denied';
  const integers = INTEGERS.map((name, at) => make(
    'span',
    { title: MEANINGS[name] },
    `${name} `,
    make('b', { class: color }, String(call.integers[at])),
  ));
  const when = make('span', {}, `user:${call.key + 1} at ${instantText(call.atUs)}`);
  readout.replaceChildren(when, ...integers);
}

/** Returns how many of the allowed calls wait in the queue of a leaky bucket first. */
function queueText({ queued, longest_queue_ms: longest }) {
  return queued > 0 ? `${countText(queued)} after a wait of up to ${waitText(longest)}` : '';
}

/** Shows the figures of a choice in one line over its chart. */
export function showFigures(line, { calls, truncated, summary }) {
  const share = shareText(summary.allowed, calls);
  const wait = summary.longest_wait_ms;
  const queue = queueText(summary);
  line.replaceChildren(
    make('b', { class: 'is-allowed' }, `${countText(summary.allowed)} allowed`),
    ...(queue === '' ? [] : [make('span', {}, `of them ${queue}`)]),
    make('b', { class: 'is-denied' }, `${countText(summary.denied)} denied`),
    make('span', {}, `${share} of ${countText(calls)} calls allowed`),
    ...(wait === null ? [] : [make('span', {}, `longest wait to a retry ${waitText(wait)}`)]),
    ...(truncated ? [make('span', { class: 'error' }, 'cut at 100,000 calls')] : []),
  );
}

/** Returns the cell of the most units in any window, compared with the promised bound. */
function windowCell(windows) {
  const part = ({ window_ms: windowMs, most_units: most, promised_units: promised }) => {
    const bound = promised === null ? 'no bound' : `bound ${countText(promised)}`;
    return `${countText(most)} in ${spanText(windowMs * 1000)} (${bound})`;
  };
  return windows.map(part).join('; ');
}

/** Shows the table that compares the choices. */
export function showSummary(table, choices, texts) {
  const heads = ['', 'rule', 'calls', 'allowed', 'share', 'denied', 'first attempts denied',
    'units granted', 'most units in any window', 'longest wait to a retry'];
  const cells = (choice, at) => {
    const { summary, calls } = choice;
    return [
      texts[at].join(' + '),
      countText(calls),
      [countText(summary.allowed), queueText(summary)].filter((part) => part !== '').join(', '),
      shareText(summary.allowed, calls),
      countText(summary.denied),
      countText(summary.first_attempts_denied),
      countText(summary.granted_units),
      windowCell(summary.windows),
      waitText(summary.longest_wait_ms),
    ];
  };
  const row = (choice, at) => {
    const head = make('th', { scope: 'row' }, choiceName(at));
    if (choice?.error !== undefined || choice === undefined) {
      return make('tr', {}, head, make('td', {}, texts[at].join(' + ')),
        make('td', { colspan: heads.length - 2, class: 'error' }, choice?.error?.text ?? ''));
    }
    return make('tr', {}, head, ...cells(choice, at).map((text, place) =>
      make('td', { 'data-head': heads[place + 1] }, text)));
  };
  table.replaceChildren(
    make('thead', {}, make('tr', {}, ...heads.map((head) => make('th', { scope: 'col' }, head)))),
    make('tbody', {}, ...choices.map(row)),
  );
}

/** Fills the table of a chart: calls and units left in up to 60 steps of the visible time. */
export function fillTable(table, choice, view) {
  const stepUs = barStep(view, 60 * 7 + 120);
  const firstUs = Math.floor(view.fromUs / stepUs) * stepUs;
  const bins = binCalls(choice.columns, firstUs, view.toUs, stepUs);
  const levels = choice.level.rules;
  const left = (level, us) =>
    level[Math.min(level.length - 1, Math.round((us / view.durationUs) * (level.length - 1)))];
  const part = (at) => (levels.length > 1 ? ` (${at + 1})` : '');
  const heads = ['from', 'allowed', 'denied',
    ...levels.map((_, at) => `left for user:${view.watch + 1}${part(at)}`)];
  const row = (allowed, at) => {
    const us = Math.max(0, firstUs + at * stepUs);
    const numbers = [allowed, bins.denied[at], ...levels.map((level) => left(level, us))];
    return make('tr', {}, make('th', { scope: 'row' }, spanText(us)),
      ...numbers.map((value) => make('td', {}, countText(value))));
  };
  table.replaceChildren(
    make('thead', {}, make('tr', {}, ...heads.map((head) => make('th', { scope: 'col' }, head)))),
    make('tbody', {}, ...Array.from(bins.allowed, row)),
  );
}
