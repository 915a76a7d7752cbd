// The traffic: a preset or a drawing, and its numbers.

import { make } from './dom.js';
import { DAY_MS, KEYS_MAX, RETRIES, SHAPES } from './state.js';
import { TimeLine } from './timeline.js';
import { nearestStep, steps } from './words.js';
import { spanText } from './axis.js';

const DURATIONS_MS = [
  ...[10, 30, 60, 300, 900].map((seconds) => seconds * 1000),
  ...[1, 6, 24, 7 * 24, 30 * 24].map((hours) => (hours * DAY_MS) / 24),
];

/** The steps of the slider for the mean rate, in calls per second. */
const RATES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, ...steps({ isDuration: false })]
  .filter((rate) => rate <= 2000);

export class Traffic {
  /** `on.change(part)` is called with changed fields of the traffic. */
  constructor(controls, figure, on) {
    this.on = on;
    this.line = new TimeLine(figure, (points) => on.change({ shape: 'drawn', points }));
    this.error = make('p', { class: 'error', id: 'traffic-error', role: 'alert' });
    this.radios = new Map();
    controls.append(this.#shapes(), this.#numbers(), this.error);
  }

  /** Shows the traffic of a state. */
  show(traffic, width) {
    for (const [shape, radio] of this.radios) radio.checked = shape === traffic.shape;
    const isDrawn = traffic.shape === 'drawn';
    this.rate.disabled = isDrawn;
    this.rateSlider.disabled = isDrawn;
    this.#set(this.rate, traffic.rate);
    const step = nearestStep({ isDuration: false, value: traffic.rate });
    const rates = RATES.map((rate) => Math.abs(Math.log(rate / Math.max(traffic.rate, 1e-9))));
    this.#set(this.rateSlider, traffic.rate < 1 ? rates.indexOf(Math.min(...rates)) : step + 6);
    this.rateSlider.setAttribute('aria-valuetext', `${traffic.rate} calls per second`);
    this.#set(this.seed, traffic.seed);
    this.#set(this.keys, traffic.keys);
    this.#set(this.cost, traffic.cost);
    this.retries.value = traffic.retries;
    this.#showDuration(traffic.duration_ms);
    this.line.show(traffic, width);
  }

  /** Shows the text of an error of the traffic, or none. */
  showError(text) {
    this.error.textContent = text;
  }

  /** Does not rewrite the field in which a user types. */
  #set(input, value) {
    if (document.activeElement !== input || input.type === 'range') input.value = String(value);
  }

  #showDuration(durationMs) {
    const value = String(durationMs);
    const isKnown = [...this.duration.options].some((option) => option.value === value);
    if (!isKnown) this.duration.append(make('option', { value }, spanText(durationMs * 1000)));
    this.duration.value = value;
  }

  #shapes() {
    const chips = make('div', { class: 'chips', role: 'radiogroup', 'aria-label': 'Traffic' });
    for (const [shape, label] of SHAPES) {
      const radio = make('input', {
        type: 'radio',
        name: 'shape',
        value: shape,
        onchange: () => this.#choose(shape),
      });
      this.radios.set(shape, radio);
      chips.append(make('label', { class: 'chip' }, radio, make('span', {}, label)));
    }
    return chips;
  }

  #choose(shape) {
    const points = shape === 'drawn' ? this.line.startingPoints() : [];
    this.on.change({ shape, points });
  }

  #numbers() {
    const number = (name, min, max, read = Number) => make('input', {
      type: 'number',
      id: `traffic-${name}`,
      min,
      max,
      step: 'any',
      'aria-describedby': 'traffic-error',
      oninput: ({ target }) => {
        if (target.value !== '') this.on.change({ [name]: read(target.value) });
      },
    });
    const field = (label, input, ...more) => make(
      'div',
      { class: 'field' },
      make('label', { for: input.id }, label),
      make('div', { class: 'inputs' }, input, ...more),
    );
    this.rate = number('rate', 0, 1e9);
    this.rateSlider = make('input', {
      type: 'range',
      min: 0,
      max: RATES.length - 1,
      'aria-label': 'Mean calls per second, all keys',
      oninput: ({ target }) => this.on.change({ rate: RATES[Number(target.value)] }),
    });
    this.seed = number('seed', 0, 2 ** 32 - 1);
    this.keys = number('keys', 1, KEYS_MAX);
    this.cost = number('cost', 0, 1e12);
    const another = make('button', {
      type: 'button',
      class: 'narrow',
      'aria-label': '+1: next seed',
      onclick: () => this.on.change({ seed: (Number(this.seed.value) + 1) % 2 ** 32 }),
    }, '+1');
    this.duration = this.#select('duration_ms', DURATIONS_MS.map((ms) => [ms, spanText(ms * 1000)]),
      Number);
    this.retries = this.#select('retries', [...RETRIES], String);
    const more = make(
      'details',
      { class: 'more' },
      make('summary', {}, 'Duration, keys, cost, retries'),
      make(
        'div',
        { class: 'fields' },
        field('duration', this.duration),
        field('keys', this.keys),
        field('cost of a call', this.cost),
        make('div', { class: 'two' }, field('a denied client retries', this.retries)),
        field('seed', this.seed, another),
      ),
    );
    // On a phone the first result shall be on the first screen.
    const isWide = matchMedia('(min-width: 861px)');
    const fold = () => {
      more.open = isWide.matches;
    };
    isWide.addEventListener('change', fold);
    fold();
    return make(
      'div',
      { class: 'numbers' },
      make('div', { class: 'wide' }, field('calls per second', this.rate, this.rateSlider)),
      more,
    );
  }

  #select(name, options, read) {
    return make('select', {
      id: `traffic-${name}`,
      onchange: ({ target }) => this.on.change({ [name]: read(target.value) }),
    }, ...options.map(([value, label]) => make('option', { value }, label)));
  }
}
