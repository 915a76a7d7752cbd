// The time line on which traffic is drawn: own SVG. Grey bars show the calls that were offered; the
// line with control points is what a drag or the arrow keys change.

import { instantLabel, multiples, roundStep, shortText, timeStep } from './axis.js';
import { gutter } from './charts.js';
import { make, makeSvg, setAll } from './dom.js';

const TOP = 10;
const AXIS_HEIGHT = 40;
const POINTS = 31;

/** Rounds a rate to three digits, so that a link stays short. */
function rounded(rate) {
  return Number(rate.toPrecision(3));
}

export class TimeLine {
  /** `onDraw(points)` is called with new control points. */
  constructor(root, onDraw) {
    this.onDraw = onDraw;
    this.svg = makeSvg('svg', { class: 'timeline' });
    this.note = make('p', { class: 'hint' });
    this.offered = { bins: new Uint32Array(1), stepUs: 1 };
    this.points = [];
    this.focused = 0;
    this.top = 0;
    this.width = 0;
    root.append(this.svg, this.note);
    this.#listen();
  }

  /** Shows the traffic of a state. */
  show(traffic, width) {
    const isSame = this.shape === traffic.shape && this.width === width;
    this.shape = traffic.shape;
    this.isDrawn = traffic.shape === 'drawn';
    this.durationUs = traffic.duration_ms * 1000;
    this.width = width;
    this.points = traffic.points;
    if (!this.isDragging && !(isSame && this.#holdsFocus())) this.#fit();
    this.#draw();
  }

  /** Shows the number of offered calls in each step of time. */
  showOffered(bins, stepUs) {
    this.offered = { bins, stepUs };
    if (!this.isDragging && !this.isDrawn) this.#fit();
    this.#draw();
  }

  /** Returns points that follow the offered calls, to begin a drawing with. */
  startingPoints() {
    const { bins, stepUs } = this.offered;
    const perSecond = 1e6 / stepUs;
    const size = bins.length / (POINTS - 1);
    const around = (at) => {
      const from = Math.max(0, Math.round((at - 0.5) * size));
      const part = bins.subarray(from, Math.max(from + 1, Math.round((at + 0.5) * size)));
      return part.reduce((sum, count) => sum + count, 0) / part.length;
    };
    return Array.from({ length: POINTS }, (_, at) =>
      [rounded(at / (POINTS - 1)), rounded(around(at) * perSecond)]);
  }

  #holdsFocus() {
    return this.svg.contains(document.activeElement);
  }

  /** Chooses the top of the scale: room above the line, or the most offered calls. */
  #fit() {
    const { bins, stepUs } = this.offered;
    const offered = Math.max(...bins) * (1e6 / stepUs);
    const drawn = Math.max(0, ...this.points.map(([, rate]) => rate)) * 1.4;
    const most = Math.max(this.isDrawn ? drawn : offered, 0.001);
    const step = roundStep(most / 4);
    this.top = Math.ceil(most / step) * step;
  }

  /** Returns the lower end of the drawing: less high on a phone. */
  get #bottom() {
    return this.width < 560 ? 80 : 190;
  }

  #x(part) {
    const side = gutter(this.width);
    return side + part * (this.width - 2 * side);
  }

  #y(rate) {
    return this.#bottom - (Math.min(rate, this.top) / this.top) * (this.#bottom - TOP);
  }

  #draw() {
    if (this.width === 0) return;
    const height = this.#bottom + AXIS_HEIGHT;
    setAll(this.svg, { width: this.width, height, viewBox: `0 0 ${this.width} ${height}` });
    const held = this.#holdsFocus();
    const ground = makeSvg('rect', {
      class: 'ground',
      x: this.#x(0),
      y: TOP,
      width: this.#x(1) - this.#x(0),
      height: this.#bottom - TOP,
    });
    this.svg.replaceChildren(
      ground,
      ...this.#axes(),
      makeSvg('path', { class: 'offered', d: this.#offeredPath() }),
      ...(this.isDrawn ? this.#line() : []),
    );
    this.note.textContent = this.isDrawn
      ? 'Drag to draw. With the keyboard: Tab to a point; up and down change its rate, left and'
        + ' right select another point.'
      : 'Drag here to draw your own traffic, starting from this shape.';
    if (held) this.svg.querySelector('[tabindex="0"]')?.focus();
  }

  #axes() {
    const labels = Math.max(3, Math.floor((this.#x(1) - this.#x(0)) / 90));
    const step = timeStep(this.durationUs / labels);
    const text = (x, y, label, anchor) => {
      const element = makeSvg('text', { x, y, 'text-anchor': anchor });
      element.textContent = label;
      return element;
    };
    const rates = multiples(0, this.top * 1.0001, roundStep(this.top / 4));
    const [left, right] = [this.#x(0), this.#x(1)];
    return [
      ...rates.map((rate) =>
        makeSvg('path', { class: 'grid', d: `M${left} ${this.#y(rate)}H${right}` })),
      ...rates.map((rate) => text(left - 6, this.#y(rate) + 4, shortText(rate), 'end')),
      ...multiples(0, this.durationUs, step).map((us) =>
        text(this.#x(us / this.durationUs), this.#bottom + 18, instantLabel(us, step), 'middle')),
      text((left + right) / 2, this.#bottom + 34, 'time', 'middle'),
    ];
  }

  #offeredPath() {
    const { bins, stepUs } = this.offered;
    const perSecond = 1e6 / stepUs;
    const x = (at) => this.#x(Math.min(1, (at * stepUs) / this.durationUs));
    const bar = (count, at) => {
      if (count === 0) return '';
      const [from, to] = [x(at), x(at + 1)];
      return `M${from.toFixed(1)} ${this.#bottom}V${this.#y(count * perSecond).toFixed(1)}`
        + `H${(to - 0.5).toFixed(1)}V${this.#bottom}Z`;
    };
    return Array.from(bins, bar).join('');
  }

  #line() {
    this.focused = Math.min(this.focused, this.points.length - 1);
    const places = this.points.map(([part, rate]) => [this.#x(part), this.#y(rate)]);
    const line = makeSvg('path', {
      class: 'line',
      d: `M${places.map((xy) => xy.join(' ')).join('L')}`,
    });
    const handle = ([cx, cy], at) => {
      const [part, rate] = this.points[at];
      const instant = instantLabel(Math.round(part * this.durationUs), 100_000);
      return makeSvg('circle', {
        cx,
        cy,
        r: 5,
        class: 'handle',
        role: 'slider',
        tabindex: at === this.focused ? 0 : -1,
        'aria-label': `Calls per second at ${instant}, point ${at + 1} of ${this.points.length}`,
        'aria-orientation': 'vertical',
        'aria-valuemin': 0,
        'aria-valuemax': this.top,
        'aria-valuenow': rate,
      });
    };
    return [line, ...places.map(handle)];
  }

  #listen() {
    const at = (event) => {
      const box = this.svg.getBoundingClientRect();
      const part = (event.clientX - box.left - this.#x(0)) / (this.#x(1) - this.#x(0));
      const height = (this.#bottom - (event.clientY - box.top)) / (this.#bottom - TOP);
      const within = (value) => Math.max(0, Math.min(1, value));
      return { part: within(part), rate: within(height) * this.top };
    };
    this.svg.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      this.svg.setPointerCapture(event.pointerId);
      this.isDragging = true;
      this.from = at(event);
      this.#drag(this.from);
    });
    this.svg.addEventListener('pointermove', (event) => {
      if (this.isDragging) this.#drag(at(event));
    });
    const end = () => {
      if (!this.isDragging) return;
      this.isDragging = false;
      this.#fit();
      this.#draw();
    };
    this.svg.addEventListener('pointerup', end);
    this.svg.addEventListener('pointercancel', end);
    this.svg.addEventListener('keydown', (event) => this.#key(event));
  }

  /** Moves the points between the last place of the pointer and `to` onto the line between them. */
  #drag(to) {
    const points = this.isDrawn ? this.points : this.startingPoints();
    const { from } = this;
    const [low, high] = [Math.min(from.part, to.part), Math.max(from.part, to.part)];
    const distance = ([part]) => Math.abs(part - to.part);
    const nearest = points.reduce((best, point) =>
      (distance(point) < distance(best) ? point : best));
    const rate = (part) => {
      if (to.part === from.part) return to.rate;
      const share = Math.max(0, Math.min(1, (part - from.part) / (to.part - from.part)));
      return from.rate + (to.rate - from.rate) * share;
    };
    const moved = points.map((point) => {
      const isPassed = point === nearest || (point[0] > low && point[0] < high);
      return isPassed ? [point[0], rounded(point === nearest ? to.rate : rate(point[0]))] : point;
    });
    this.from = to;
    this.onDraw(moved);
  }

  #key(event) {
    if (!this.isDrawn || !event.target.classList.contains('handle')) return;
    const move = (by) => Math.max(0, Math.min(this.points.length - 1, this.focused + by));
    const places = {
      ArrowLeft: move(-1),
      ArrowRight: move(1),
      Home: 0,
      End: this.points.length - 1,
    };
    const changes = { ArrowUp: 0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1 };
    if (event.key in places) {
      this.focused = places[event.key];
      this.#draw();
    } else if (event.key in changes) {
      const [part, rate] = this.points[this.focused];
      const next = rounded(Math.max(0, rate + changes[event.key] * this.top));
      const points = [...this.points];
      points[this.focused] = [part, next];
      if (next > this.top) this.top = next;
      this.onDraw(points);
    } else return;
    event.preventDefault();
  }
}
