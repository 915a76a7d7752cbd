// The page: holds the state, requests the calls of every choice from the program, and shows them.

import { countText, spanText } from './axis.js';
import { bars, barStep, Chart } from './charts.js';
import { LANGUAGES, line } from './commands.js';
import { copy, forgetColours, make } from './dom.js';
import { binOffered, callAt, decode, nearestCall, sameCall } from './reply.js';
import {
  callText, fillTable, showFigures, showReadout, showSummary, showTooltip,
} from './results.js';
import { choiceName, Rules } from './rules.js';
import { checkState, defaultState, fromFragment, toFragment } from './state.js';
import { Traffic } from './traffic.js';

const SMALLEST_ZOOM = 100;
const at = (id) => document.getElementById(id);

let state = defaultState();
let results = null;
let zoom = null;
let language = LANGUAGES[0];
let changedAt = null;
let redraws = 0;
const rows = [];

const traffic = new Traffic(at('traffic-controls'), at('traffic-figure'), {
  change(part) {
    state.traffic = { ...state.traffic, ...part };
    state.watch = Math.min(state.watch, Math.max(0, state.traffic.keys - 1));
    if ('duration_ms' in part) zoom = null;
    changed();
  },
});

const rules = new Rules(at('add'), {
  change(choices) {
    state.choices = choices;
    changed();
  },
  row: (place) => rows[place],
  rows: showRows,
});

/** Adds or removes rows until the page has one for each choice. */
function showRows(count) {
  while (rows.length > count) {
    const row = rows.pop();
    row.chart.destroy();
    row.element.remove();
  }
  while (rows.length < count) rows.push(makeRow(rows.length));
}

function makeRow(place) {
  const head = make('div', { class: 'head' });
  const controls = make('div', { class: 'parts' });
  const figures = make('span', { class: 'figures' });
  const readout = make('span', { class: 'readout' });
  const plot = make('div', {
    class: 'plot',
    role: 'slider',
    tabindex: 0,
    'aria-label': `Calls under ${choiceName(place)}`,
    'aria-valuemin': 0,
    'aria-valuemax': 0,
    'aria-valuenow': 0,
    'aria-valuetext': 'no call selected',
    onkeydown: (event) => key(event, place),
    onblur: () => point(null),
  });
  const tooltip = make('div', { class: 'tooltip', hidden: true });
  const table = make('table', { 'aria-label': `Calls and units left under ${choiceName(place)}` });
  const details = make('details', { ontoggle: () => showTable(rows[place]) },
    make('summary', {}, 'Chart as a table'),
    make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table' }, table));
  const element = make('section', { class: 'row', 'aria-label': choiceName(place) },
    make('div', { class: 'controls' }, head, controls),
    make('figure', {}, make('figcaption', {}, figures),
      make('div', { class: 'chart' }, plot, tooltip),
      make('div', { class: 'under' }, details, readout)));
  at('rules').append(element);
  const chart = new Chart(plot, {
    point: (atUs, lane) => point({ place, atUs, lane }),
    leave: () => point(null),
    zoom: (fromUs, toUs) => setZoom(fromUs, toUs),
    reset: () => setZoom(0, Infinity),
  });
  const parts = { figures, readout, plot, tooltip, details, table, chart };
  return { element, head, controls, ...parts, call: -1 };
}

/** Shows the controls of the state, and requests its calls. */
function changed() {
  changedAt ??= performance.now();
  showControls();
  refresh();
}

function showControls() {
  traffic.show(state.traffic, at('traffic-figure').clientWidth);
  rules.show(state.choices);
  const watch = at('watch');
  const keys = Math.max(1, Math.min(20, Math.floor(state.traffic.keys) || 1));
  if (watch.options.length !== keys) {
    const option = (_, key) => make('option', { value: key }, `user:${key + 1}`);
    watch.replaceChildren(...Array.from({ length: keys }, option));
  }
  watch.value = String(state.watch);
}

let isBusy = false;
let isWaiting = false;

/** Requests the calls. While an older request is under way, waits for its response first. */
async function refresh() {
  isWaiting = true;
  if (isBusy) return;
  isBusy = true;
  while (isWaiting) {
    isWaiting = false;
    try {
      checkState(state);
      await simulate();
    } catch (error) {
      traffic.showError(error.message);
      document.body.dataset.ready = 'error';
    }
  }
  isBusy = false;
}

/**
 * Shows the calls of the state. A choice does not depend on the others, so the program decides only
 * those that have no calls yet under this traffic.
 */
async function simulate() {
  document.body.dataset.ready = 'no';
  const { traffic: { points, ...numbers }, watch, choices } = state;
  const common = { traffic: numbers.shape === 'drawn' ? { ...numbers, points } : numbers, watch };
  const scene = JSON.stringify(common);
  const names = choices.map((texts) => JSON.stringify(texts));
  const known = results?.scene === scene ? results.known : new Map();
  const missing = choices.filter((_, place) => !known.has(names[place]));
  let header = results;
  if (missing.length > 0) {
    header = await post({ ...common, choices: missing.map((texts) => ({ rules: texts })) });
    missing.forEach((texts, place) => known.set(JSON.stringify(texts), header.choices[place]));
  }
  // Only the calls on the page stay in memory.
  const kept = new Map(names.map((name) => [name, known.get(name)]));
  traffic.showError('');
  show({ ...header, scene, known: kept, choices: names.map((name) => kept.get(name)) });
  rememberSoon();
}

async function post(scenario) {
  const response = await fetch('/simulate', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(scenario),
  }).catch(() => {
    throw new Error('The program does not respond: start redis-throttle-lab again.');
  });
  if (!response.ok) throw new Error(await errorText(response));
  return decode(await response.arrayBuffer());
}

async function errorText(response) {
  const body = await response.json().catch(() => null);
  return body?.error ?? `The program responded with status ${response.status}.`;
}

/** Shows results: the charts first, then the parts below them. */
function show(decoded) {
  results = decoded;
  for (const [place, row] of rows.entries()) {
    const choice = results.choices[place];
    rules.showError(place, choice?.error);
    row.plot.classList.toggle('is-stale', choice?.columns === undefined);
  }
  showCharts();
  const valid = results.choices.find((choice) => choice.columns !== undefined);
  const durationUs = results.duration_ms * 1000;
  if (valid !== undefined) {
    const stepUs = barStep({ ...view(), fromUs: 0, toUs: durationUs }, rowWidth());
    traffic.line.showOffered(binOffered(valid.columns, durationUs, stepUs), stepUs);
  }
  showSummary(at('summary'), results.choices, state.choices);
  showCommands();
  const calls = results.choices.reduce((sum, choice) => sum + (choice.calls ?? 0), 0);
  const startedAt = changedAt;
  changedAt = null;
  requestAnimationFrame(() => {
    if (startedAt === null) return;
    const ms = performance.now() - startedAt;
    at('redrawn').textContent = `${countText(calls)} calls drawn in ${Math.round(ms)} ms`;
    redraws += 1;
    Object.assign(document.body.dataset, { redrawMs: ms.toFixed(1), redraws });
  });
  document.body.dataset.ready = 'yes';
}

function rowWidth() {
  return rows[0].plot.parentElement.clientWidth;
}

/** Returns the visible time of all charts and the step of their bars. */
function view() {
  const durationUs = results.duration_ms * 1000;
  const width = rowWidth();
  const { fromUs, toUs } = zoom ?? { fromUs: 0, toUs: durationUs };
  const { keys, shape, rate } = state.traffic;
  const gapUs = shape === 'steady' && rate > 0 ? 1e6 / rate : 0;
  const common = { durationUs, fromUs, toUs, width, keys, watch: state.watch, gapUs };
  return { ...common, stepUs: barStep(common, width) };
}

function showCharts() {
  if (results === null) return;
  const visible = view();
  const bins = results.choices.map((choice) => choice.columns && bars(choice, visible));
  const common = { ...visible, callsMax: Math.max(...bins.map((one) => one?.most ?? 0)) || 1 };
  at('bar-step').textContent = spanText(common.stepUs);
  at('unzoom').hidden = zoom === null;
  for (const [place, row] of rows.entries()) {
    const choice = results.choices[place];
    if (choice?.columns === undefined) {
      row.figures.textContent = 'These calls are of an older rule: correct the text.';
      if (row.chart.choice === null) row.figures.textContent = 'No calls: correct the text.';
      continue;
    }
    row.chart.show(choice, common, bins[place]);
    showFigures(row.figures, choice);
    row.plot.setAttribute('aria-valuemax', choice.calls);
    showTable(row);
  }
  point(null);
}

function showTable(row) {
  const choice = results?.choices[rows.indexOf(row)];
  if (row.details.open && choice?.columns !== undefined) fillTable(row.table, choice, view());
}

function setZoom(fromUs, toUs) {
  const durationUs = results.duration_ms * 1000;
  const least = durationUs / SMALLEST_ZOOM;
  const middle = (fromUs + Math.min(toUs, durationUs)) / 2;
  const half = Math.max(least, Math.min(toUs, durationUs) - fromUs) / 2;
  const from = Math.max(0, Math.min(middle - half, durationUs - least));
  const to = Math.min(durationUs, Math.max(middle + half, least));
  zoom = from === 0 && to === durationUs ? null : { fromUs: from, toUs: to };
  showCharts();
}

/**
 * Shows the call that is nearest to an instant in the chart at `place`, of the key of `lane` if the
 * pointer is in a lane, and the nearest call of the same key in the other charts.
 */
function point(target) {
  if (results === null) return;
  const choice = target === null ? undefined : results.choices[target.place];
  const columns = choice?.columns;
  const found = columns === undefined
    ? -1
    : target.call ?? nearestCall(columns, target.atUs, target.lane);
  const call = found < 0 ? null : callAt(choice, found);
  for (const [place, row] of rows.entries()) {
    if (target?.place === place) showHere(row, choice, call);
    else showThere(row, results.choices[place], columns, found);
  }
}

/** Shows a call in the tooltip of its chart. */
function showHere(row, choice, call) {
  showReadout(row.readout, null);
  row.tooltip.hidden = call === null;
  row.call = call?.at ?? -1;
  const left = row.chart.mark(call?.atUs ?? null);
  if (call === null) return;
  showTooltip(row.tooltip, call, choice, left, row.plot.clientWidth);
  row.plot.setAttribute('aria-valuenow', call.at + 1);
  row.plot.setAttribute('aria-valuetext', callText(call, choice));
}

/** Shows in another chart the reply to the same call, or to the nearest one of its key. */
function showThere(row, choice, columns, found) {
  row.tooltip.hidden = true;
  const hasCall = found >= 0 && choice?.columns !== undefined;
  row.call = hasCall ? sameCall(columns, found, choice.columns) : -1;
  const call = row.call < 0 ? null : callAt(choice, row.call);
  row.chart.mark(call?.atUs ?? null);
  showReadout(row.readout, call);
}

/** Handles the keys of a chart: from call to call, and closer or farther. */
function key(event, place) {
  const choice = results?.choices[place];
  if (choice?.columns === undefined || event.target !== rows[place].plot) return;
  const { call } = rows[place];
  const last = choice.calls - 1;
  const visible = zoom ?? { fromUs: 0, toUs: results.duration_ms * 1000 };
  const middle = call < 0 ? (visible.fromUs + visible.toUs) / 2 : choice.columns.at_us[call];
  const scale = (factor) => {
    const half = ((visible.toUs - visible.fromUs) * factor) / 2;
    setZoom(middle - half, middle + half);
  };
  const moves = {
    ArrowLeft: call - 1, ArrowRight: call + 1, PageUp: call - 10, PageDown: call + 10,
    Home: 0, End: last,
  };
  const actions = {
    Escape: () => point(null),
    '+': () => scale(0.5),
    '-': () => scale(2),
    0: () => setZoom(0, Infinity),
  };
  if (event.key in moves && last >= 0) {
    point({ place, call: Math.max(0, Math.min(last, moves[event.key])) });
  } else if (event.key in actions) actions[event.key]();
  else return;
  event.preventDefault();
}

function showCommands() {
  const command = (choice, place) => {
    const isValid = choice.columns !== undefined;
    const text = isValid ? line(language, choice) : choice.error.text;
    const button = make('button', {
      type: 'button',
      'aria-label': `Copy the line of ${choiceName(place)}`,
      onclick: () => copy(button, text),
    }, 'Copy');
    button.disabled = !isValid;
    return make('div', { class: 'command' }, make('span', {}, choiceName(place)),
      make('code', { class: isValid ? 'code' : 'code error', tabindex: 0 }, text), button);
  };
  at('commands').replaceChildren(...results.choices.map(command));
  const isClient = language !== 'redis-cli' && language !== 'policy';
  at('commands-hint').textContent = isClient
    ? `limiter is the limiter of the ${language} client; docs/clients has its imports.`
    : language === 'policy'
      ? 'A line of the policy file, or the words after RL.POLICY SET. SHADOW denies no call; remove'
        + ' it to enforce the limit.'
      : 'Replace user:1 by what you limit: a user, an IP or a tenant.';
}

function showLanguages() {
  for (const name of LANGUAGES) {
    const radio = make('input', {
      type: 'radio',
      name: 'language',
      value: name,
      onchange: () => {
        language = name;
        if (results !== null) showCommands();
      },
    });
    radio.checked = name === language;
    at('languages').append(make('label', { class: 'chip' }, radio, make('span', {}, name)));
  }
}

let remembering;
let remembered = '';

/** Puts the state into the address. Browsers limit how often a page may do this. */
function rememberSoon() {
  clearTimeout(remembering);
  remembering = setTimeout(remember, 300);
}

function remember() {
  clearTimeout(remembering);
  remembered = toFragment(state);
  history.replaceState(null, '', `#${remembered}`);
}

/** Reads the state of the address. A bad one shows a message and the default state. */
function open() {
  const fragment = location.hash.slice(1);
  if (fragment === remembered && fragment !== '') return;
  const notice = at('notice');
  notice.hidden = true;
  try {
    state = fragment === '' ? defaultState() : fromFragment(fragment);
  } catch (error) {
    state = defaultState();
    notice.textContent = `The link cannot be opened: ${error.message}. `
      + 'The page shows the default state.';
    notice.hidden = false;
  }
  zoom = null;
  changed();
}

function isDark() {
  return getComputedStyle(document.documentElement).colorScheme === 'dark'
    || (!document.documentElement.dataset.theme
      && matchMedia('(prefers-color-scheme: dark)').matches);
}

function showTheme() {
  forgetColours();
  at('theme').setAttribute('aria-pressed', String(isDark()));
  for (const row of rows) row.chart.redraw();
}

at('theme').addEventListener('click', () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  showTheme();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', showTheme);
at('share').addEventListener('click', ({ target }) => {
  remember();
  copy(target, location.href);
});
at('unzoom').addEventListener('click', () => setZoom(0, Infinity));
at('watch').addEventListener('change', ({ target }) => {
  state.watch = Number(target.value);
  changed();
});
addEventListener('hashchange', open);
new ResizeObserver(() => {
  traffic.show(state.traffic, at('traffic-figure').clientWidth);
  showCharts();
}).observe(at('traffic-figure'));

showLanguages();
open();
showTheme();
