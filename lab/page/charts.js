// A chart for each choice of rules, all on one time axis. Its upper part has a lane for each key,
// in which each call is drawn: above the middle if it was allowed, below if not. Its lower
// part has the calls in each step of time as bars, and the units left for the watched key as a
// line.
//
// uPlot draws the axes and the line. The lanes are pixels, because 100,000 paths would be slow.

import { instantLabel, multiples, roundStep, shortText, timeStep } from './axis.js';
import { colour, make, paint } from './dom.js';
import { binCalls, firstAtOrAfter } from './reply.js';

const AXIS_HEIGHT = 40;
const LABEL_SIZE = 14;
const BARS_HEIGHT = 96;
const BAR_MIN_WIDTH = 7;
const FONT = '12px system-ui, sans-serif';
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

/** Returns the width of the axes at both sides of a chart, which the time line has too. */
export function gutter(width) {
  return width < 560 ? 46 : 62;
}

/** Returns the height of the lanes of `keys` keys. */
function lanesHeight(keys) {
  return Math.max(28, Math.min(100, keys * 14));
}

/**
 * Returns the step of the bars of a chart of this width, for the visible time. Calls in even gaps
 * fill each bar alike.
 */
export function barStep(view, width) {
  const bars = (width - 2 * gutter(width)) / BAR_MIN_WIDTH;
  return timeStep((view.toUs - view.fromUs) / Math.max(10, bars), view.gapUs);
}

/** Returns the start of the first bar: bars start at multiples of their step. */
function firstBar({ fromUs, stepUs }) {
  return Math.floor(fromUs / stepUs) * stepUs;
}

/**
 * Returns the bars of a choice: the calls in each step of the visible time, and the most of them in
 * a second.
 */
export function bars(choice, view) {
  const bins = binCalls(choice.columns, firstBar(view), view.toUs, view.stepUs);
  const most = bins.allowed.reduce((all, count, at) => Math.max(all, count + bins.denied[at]), 0);
  return { ...bins, most: perSecond(most, view) };
}

function perSecond(calls, { stepUs }) {
  return calls / (stepUs / 1e6);
}

/**
 * Returns the top of the scale of a level: the limit of a single rule. The limits of the rules in
 * an RL.ALL are not in its calls, so there it is the most that was left.
 */
function mostOf(level, { calls, columns, level: { rules } }) {
  const limit = rules.length === 1 && calls > 0 ? columns.limit[0] : 1;
  return level.reduce((most, left) => Math.max(most, left), limit);
}

/** Returns a line of pixels with a stroke of `wide` pixels at each place that has calls. */
function strokes(counts, wide, [red, green, blue]) {
  const line = new Uint32Array(counts.length);
  const ink = (blue << 16) | (green << 8) | red;
  for (let x = 0; x < counts.length; x += 1) {
    if (counts[x] === 0) continue;
    const alpha = Math.min(255, 130 + 40 * counts[x]);
    const pixel = ((alpha << 24) | ink) >>> 0;
    if (wide === 1) line[x] = pixel;
    else line.fill(pixel, x, x + wide);
  }
  return line;
}

export class Chart {
  /** `plot` is the element to draw in, `on` has `point`, `leave`, `zoom` and `reset`. */
  constructor(plot, on) {
    this.plot = plot;
    this.on = on;
    this.hair = make('div', { class: 'hair', hidden: true });
    this.choice = null;
    this.view = null;
    this.chart = null;
    this.lanes = document.createElement('canvas');
    this.drawn = 0;
  }

  /** Draws the calls of a choice and its bars. `view` has the visible time and the scale. */
  show(choice, view, bins) {
    this.choice = choice;
    this.view = view;
    this.bins = bins;
    const { rules } = choice.level;
    const form = [rules.length, view.width, view.keys].join();
    if (this.form !== form) this.#make(form, rules.length);
    const count = rules[0].length;
    const seconds = Float64Array.from(rules[0], (_, at) =>
      (at / (count - 1)) * (view.durationUs / 1e6));
    const scale = new Array(count).fill(null);
    [scale[0], scale[1]] = [0, view.callsMax];
    const limits = rules.map((level) => mostOf(level, choice));
    this.levelMax = rules.length === 1 ? limits[0] : 100;
    const percent = (level, at) => Float64Array.from(level, (left) => (100 * left) / limits[at]);
    const lines = rules.length === 1 ? rules : rules.map(percent);
    this.chart.setData([seconds, scale, ...lines], true);
  }

  /** Draws again, in the colours of the theme. */
  redraw() {
    this.chart?.redraw(true, true);
  }

  /** Moves the vertical line to an instant, or hides it. */
  mark(atUs) {
    this.hair.hidden = atUs === null || this.chart === null;
    if (this.hair.hidden) return null;
    const left = this.chart.valToPos(atUs / 1e6, 'x');
    this.hair.style.transform = `translateX(${left}px)`;
    return left + gutter(this.view.width);
  }

  destroy() {
    this.chart?.destroy();
  }

  #make(form, levels) {
    this.chart?.destroy();
    this.form = form;
    const { width, keys } = this.view;
    const strip = lanesHeight(keys) + 6;
    const stretch = (BARS_HEIGHT + strip) / BARS_HEIGHT;
    const line = (_, at) => ({
      scale: 'level',
      stroke: () => paint('level'),
      width: 1.5,
      dash: DASHES[at % DASHES.length],
      points: { show: false },
    });
    const options = {
      width,
      height: BARS_HEIGHT + strip + AXIS_HEIGHT,
      padding: [0, 0, 0, 0],
      legend: { show: false },
      cursor: {
        x: false,
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false, dist: 5 },
        bind: { dblclick: () => () => this.on.reset() },
      },
      scales: {
        x: { time: false, range: () => [this.view.fromUs / 1e6, this.view.toUs / 1e6] },
        calls: { range: () => [0, this.view.callsMax * stretch] },
        level: { range: () => [0, this.levelMax * 1.04 * stretch] },
      },
      axes: [this.#timeAxis(), this.#axis('calls', 3), this.#axis('level', 1)],
      series: [
        {},
        { scale: 'calls', stroke: () => 'transparent', points: { show: false } },
        ...Array.from({ length: levels }, line),
      ],
      hooks: {
        drawAxes: [(chart) => this.#drawCalls(chart)],
        setSelect: [(chart) => this.#zoom(chart)],
      },
    };
    this.chart = new globalThis.uPlot(options, [[0, 1], [0, 1], ...Array(levels).fill([0, 1])]);
    this.plot.replaceChildren(this.chart.root);
    this.#listen(this.chart.over);
  }

  #timeAxis() {
    const { width } = this.view;
    const labels = Math.max(3, Math.floor((width - 2 * gutter(width)) / 90));
    const step = () => timeStep((this.view.toUs - this.view.fromUs) / labels);
    return {
      label: 'time',
      labelSize: LABEL_SIZE,
      labelFont: FONT,
      size: AXIS_HEIGHT - LABEL_SIZE,
      font: FONT,
      stroke: () => paint('axis'),
      grid: { stroke: () => paint('grid'), width: 1 },
      ticks: { show: false },
      gap: 6,
      splits: () => multiples(this.view.fromUs, this.view.toUs, step()).map((us) => us / 1e6),
      values: (_, splits) => splits.map((second) => instantLabel(Math.round(second * 1e6), step())),
    };
  }

  #axis(scale, side) {
    const isCalls = scale === 'calls';
    const most = () => (isCalls ? this.view.callsMax : this.levelMax);
    const step = () => roundStep(most() / 3);
    const unit = () => (isCalls || this.choice.level.rules.length === 1 ? '' : ' %');
    return {
      scale,
      side,
      label: isCalls ? 'calls per second' : 'left',
      labelSize: LABEL_SIZE,
      labelFont: FONT,
      size: gutter(this.view.width) - LABEL_SIZE,
      font: FONT,
      stroke: () => paint(isCalls ? 'axis' : 'level'),
      grid: { show: isCalls, stroke: () => paint('grid'), width: 1 },
      ticks: { show: false },
      gap: 6,
      splits: () => multiples(0, most(), step()),
      values: (_, splits) => splits.map((value) => shortText(value) + unit()),
    };
  }

  #zoom(chart) {
    const { left, width } = chart.select;
    if (width < 5) return;
    const from = chart.posToVal(left, 'x') * 1e6;
    const to = chart.posToVal(left + width, 'x') * 1e6;
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.on.zoom(from, to);
  }

  #listen(over) {
    over.append(this.hair);
    const point = (event) => {
      const box = over.getBoundingClientRect();
      const atUs = this.chart.posToVal(event.clientX - box.left, 'x') * 1e6;
      const lane = Math.floor(((event.clientY - box.top) / lanesHeight(this.view.keys))
        * this.view.keys);
      this.on.point(atUs, lane < this.view.keys ? Math.max(0, lane) : undefined);
    };
    over.addEventListener('pointermove', point);
    over.addEventListener('pointerdown', point);
    // A finger leaves the screen when the call is to be read.
    over.addEventListener('pointerleave', ({ pointerType }) => {
      if (pointerType !== 'touch') this.on.leave();
    });
  }

  #drawCalls(chart) {
    const { ctx, bbox } = chart;
    const ratio = globalThis.uPlot.pxRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    this.#drawBars(chart);
    ctx.restore();
    const height = Math.round(lanesHeight(this.view.keys) * ratio);
    this.#drawLanes(Math.round(bbox.width), height);
    ctx.drawImage(this.lanes, Math.round(bbox.left), Math.round(bbox.top));
    this.#nameLanes(ctx, bbox, height, ratio);
  }

  #drawBars(chart) {
    const { ctx } = chart;
    const y = (calls) => chart.valToPos(perSecond(calls, this.view), 'calls', true);
    const first = firstBar(this.view);
    const { stepUs } = this.view;
    const bars = { allowed: new Path2D(), denied: new Path2D() };
    for (let bin = 0; bin < this.bins.allowed.length; bin += 1) {
      const [allowed, denied] = [this.bins.allowed[bin], this.bins.denied[bin]];
      if (allowed + denied === 0) continue;
      const left = Math.round(chart.valToPos((first + bin * stepUs) / 1e6, 'x', true)) + 1;
      const right = Math.round(chart.valToPos((first + (bin + 1) * stepUs) / 1e6, 'x', true));
      const width = Math.max(1, right - left);
      const [low, high] = [y(allowed), y(allowed + denied)];
      bars.allowed.rect(left, low, width, y(0) - low);
      bars.denied.rect(left, high, width, low - high);
    }
    ctx.fillStyle = paint('allowed-fill');
    ctx.fill(bars.allowed);
    ctx.fillStyle = paint('denied-fill');
    ctx.fill(bars.denied);
  }

  /** Draws every visible call into the lanes. More calls on one pixel make it stronger. */
  #drawLanes(width, height) {
    const { at_us: atUs, key, allowed } = this.choice.columns;
    const { fromUs, toUs, keys } = this.view;
    const counts = new Uint16Array(width * keys * 2);
    const scale = width / (toUs - fromUs);
    const end = firstAtOrAfter(atUs, toUs);
    const start = firstAtOrAfter(atUs, fromUs);
    for (let at = start; at < end; at += 1) {
      const half = 2 * key[at] + (allowed[at] > 0 ? 0 : 1);
      counts[half * width + Math.floor((atUs[at] - fromUs) * scale)] += 1;
    }
    this.drawn = end - start;
    this.plot.dataset.drawnCalls = String(this.drawn);
    this.lanes.width = width;
    this.lanes.height = height;
    const context = this.lanes.getContext('2d');
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const wide = Math.round((this.drawn < width ? 3 : 1) * globalThis.uPlot.pxRatio);
    for (let half = 0; half < 2 * keys; half += 1) {
      const line = strokes(counts.subarray(half * width, (half + 1) * width), wide,
        colour(half % 2 === 0 ? 'allowed-fill' : 'denied-fill'));
      const top = Math.round((half * height) / (2 * keys));
      const bottom = Math.round(((half + 1) * height) / (2 * keys)) - (half % 2);
      for (let y = top; y < bottom; y += 1) pixels.set(line, y * width);
    }
    context.putImageData(image, 0, 0);
  }

  #nameLanes(ctx, bbox, height, ratio) {
    const { keys } = this.view;
    const lane = height / keys;
    const every = Math.ceil((13 * ratio) / lane);
    const least = bbox.top + 7 * ratio;
    ctx.fillStyle = paint('axis');
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = 'right';
    ctx.textBaseline = 'middle';
    const prefix = this.view.width < 560 ? 'u:' : 'user:';
    for (let key = 0; key < keys; key += every) {
      const y = Math.max(least, bbox.top + (key + 0.5) * lane);
      ctx.fillText(`${prefix}${key + 1}`, bbox.left - 6 * ratio, y);
    }
  }
}
