// The rules: one to four choices, each one rule or several that one RL.ALL decides. A rule is
// written in the words of its command; sliders move the numbers in it.

import { make, setAll } from './dom.js';
import { CHOICES_MAX, RULES_MAX } from './state.js';
import {
  nearestStep, sentence, sliderArguments, steps, withWord, writeDuration, writeValue,
} from './words.js';

const NEW_RULES = ['GCRA 10 10 10', 'FIXED 10 10', 'SLIDING 10 10', 'SLIDINGLOG 10 10'];
const SECOND_RULE = 'FIXED 100 1h';

/** Returns the name of a choice, by its place. */
export function choiceName(at) {
  return `Rule ${at + 1}`;
}

/** One rule: its text, sliders and error. */
class RuleField {
  constructor(id, text, label, on) {
    this.text = text;
    this.on = on;
    this.form = '';
    this.sliders = make('div', { class: 'sliders' });
    this.error = make('p', { class: 'error', id: `${id}-error` });
    this.sentence = make('p', { class: 'sentence' });
    this.input = make('input', {
      type: 'text',
      id,
      class: 'words',
      'aria-label': label,
      'aria-describedby': this.error.id,
      spellcheck: 'false',
      autocomplete: 'off',
      autocapitalize: 'characters',
      maxlength: 400,
      oninput: () => {
        this.text = this.input.value;
        this.#showSliders();
        on.change();
      },
    });
    this.input.value = text;
    this.#showSliders();
  }

  showError(text) {
    this.error.textContent = text;
    setAll(this.input, { 'aria-invalid': text === '' ? null : 'true' });
  }

  /** Shows a slider for each number. The sliders stay as long as their names do. */
  #showSliders() {
    this.sentence.textContent = sentence(this.text);
    const found = sliderArguments(this.text);
    const form = found.map(({ name }) => name).join();
    if (form !== this.form) {
      this.form = form;
      this.sliders.replaceChildren(...found.map((argument, at) => this.#slider(argument, at)));
    }
    for (const [at, argument] of found.entries()) {
      const [, range, output] = this.sliders.children[at].children;
      const value = argument.isDuration ? writeDuration(argument.value) : String(argument.value);
      range.value = String(nearestStep(argument));
      range.setAttribute('aria-valuetext', value);
      output.textContent = value;
    }
  }

  #slider(argument, at) {
    const range = make('input', {
      type: 'range',
      min: 0,
      max: steps(argument).length - 1,
      'aria-label': `${argument.name} of ${this.input.getAttribute('aria-label')}`,
      oninput: () => {
        const current = sliderArguments(this.text)[at];
        const word = writeValue(current, steps(current)[Number(range.value)]);
        this.text = withWord(this.text, current.place, word);
        this.input.value = this.text;
        this.#showSliders();
        this.on.change();
      },
    });
    return make('div', { class: 'slider' }, make('span', {}, argument.name), range,
      make('output', {}));
  }
}

/** The controls of all choices. */
export class Rules {
  /**
   * `on.change(choices)` is called with the new texts. `on.row(at)` returns the elements of the row
   * of a choice: `head` and `controls`. `on.rows(count)` adds or removes rows.
   */
  constructor(add, on) {
    this.on = on;
    this.fields = [];
    this.add = add;
    add.addEventListener('click', () => {
      const choices = this.#texts();
      const unused = NEW_RULES.find((rule) => !choices.flat().includes(rule)) ?? NEW_RULES[0];
      this.#replace([...choices, [unused]], choices.length);
    });
  }

  /** Shows the choices of a state. */
  show(choices) {
    if (JSON.stringify(choices) === JSON.stringify(this.#texts())) return;
    this.on.rows(choices.length);
    this.fields = choices.map((rules, at) => this.#choice(rules, at, choices.length));
    this.add.disabled = choices.length >= CHOICES_MAX;
  }

  /** Shows the error of a choice at the field of its rule, or none. */
  showError(at, error) {
    for (const [place, field] of (this.fields[at] ?? []).entries()) {
      field.showError(error?.rule === place ? error.text : '');
    }
  }

  #texts() {
    return this.fields.map((rules) => rules.map(({ text }) => text));
  }

  /** Replaces all choices, and moves the focus to the first field of the choice `focus`. */
  #replace(choices, focus, place = 0) {
    this.show(choices);
    this.on.change(choices);
    this.fields[Math.min(focus, choices.length - 1)]?.[place]?.input.focus();
  }

  #choice(rules, at, count) {
    const { head, controls } = this.on.row(at);
    const changed = () => this.on.change(this.#texts());
    const label = (place) =>
      rules.length === 1 ? choiceName(at) : `${choiceName(at)}, part ${place + 1}`;
    const fields = rules.map((text, place) =>
      new RuleField(`rule-${at}-${place}`, text, label(place), { change: changed }));
    const without = (list, place) => list.filter((_, other) => other !== place);
    const remove = make('button', {
      type: 'button',
      class: 'quiet',
      'aria-label': `Remove ${choiceName(at)}`,
      onclick: () => this.#replace(without(this.#texts(), at), at),
    }, 'Remove');
    remove.hidden = count === 1;
    const more = make('button', {
      type: 'button',
      class: 'quiet',
      'aria-label': `+ rule in the same call as ${choiceName(at)}`,
      onclick: () => {
        const choices = this.#texts();
        choices[at] = [...choices[at], SECOND_RULE];
        this.#replace(choices, at, choices[at].length - 1);
      },
    }, '+ rule in the same call');
    more.disabled = rules.length >= RULES_MAX;
    const part = (field, place) => {
      const drop = make('button', {
        type: 'button',
        class: 'quiet',
        'aria-label': `Remove ${label(place)} from the call`,
        onclick: () => {
          const choices = this.#texts();
          choices[at] = without(choices[at], place);
          this.#replace(choices, at);
        },
      }, '×');
      const line = make('div', { class: 'word-line' }, field.input, rules.length > 1 ? drop : null);
      return make('div', { class: 'part' }, line, field.error, field.sentence, field.sliders);
    };
    head.replaceChildren(
      make('h3', {}, choiceName(at)),
      rules.length > 1 ? make('span', { class: 'badge' }, `RL.ALL of ${rules.length}`) : '',
      remove,
    );
    controls.replaceChildren(...fields.map(part), more);
    return fields;
  }
}
