/** The algorithms that count usage in a window, beside the units that reservations hold. */
import { type Algorithm, max, ms } from './algorithms.js';

/** A reservation of a key. */
export interface Reserved {
  readonly id: string;
  /** The units that it holds; undefined once it is settled. */
  readonly units: number | undefined;
  readonly ttlUs: bigint;
  /** The instant at which its units are free and its id is forgotten. */
  readonly lapsesAt: bigint;
}

/** A window. It is open if units are used. */
export interface Counter {
  readonly start: bigint;
  readonly used: number;
  /** Undefined if there are none, as in the local limiter. */
  readonly reserved?: readonly Reserved[];
}

/** The window that is open at an instant, or that a call would open. */
interface Open {
  readonly start: bigint;
  readonly used: number;
  readonly end: bigint;
}

/** A counter per window. */
export interface WindowAlgorithm extends Algorithm<Counter> {
  /** Returns what is used and reserved at an instant. */
  at(state: Counter | undefined, nowUs: bigint): Usage;
}

/** The usage of a key at one instant. */
export class Usage {
  readonly reserved: readonly Reserved[];

  constructor(
    private readonly limit: number,
    private readonly open: Open,
    private readonly nowUs: bigint,
    reserved: readonly Reserved[] = [],
  ) {
    this.reserved = reserved.filter(({ lapsesAt }) => nowUs < lapsesAt);
  }

  get used(): number {
    return this.open.used;
  }

  /** The units used and held. */
  get taken(): number {
    return this.reserved.reduce((sum, { units = 0 }) => sum + units, this.open.used);
  }

  /** Returns the same instant with other units used, and other reservations. */
  with(used: number, reserved = this.reserved): Usage {
    return new Usage(this.limit, { ...this.open, used }, this.nowUs, reserved);
  }

  /** Returns the state to store; undefined if nothing is used and reserved. */
  state(): Counter | undefined {
    const { start, used } = this.open;
    if (this.reserved.length > 0) return { start, used, reserved: this.reserved };
    return used > 0 ? { start, used } : undefined;
  }

  /** Returns fields 2, 3 and 5 of a reply. */
  shown(): { limit: number; remaining: number; resetAfterMs: number } {
    const ends = this.reserved.map(({ units, lapsesAt }) => (units ? lapsesAt : this.nowUs));
    if (this.open.used > 0) ends.push(this.open.end);
    const reset = ends.reduce(max, this.nowUs);
    const remaining = Math.max(0, this.limit - this.taken);
    return { limit: this.limit, remaining, resetAfterMs: ms(reset - this.nowUs) };
  }

  /** Returns the ms until a cost fits: the window ends, or reservations expire. -1 for never. */
  roomInMs(cost: number): number {
    if (cost > this.limit) return -1;
    const freed = this.reserved.map(({ units = 0, lapsesAt }) => ({ units, at: lapsesAt }));
    freed.push({ units: this.open.used, at: this.open.end });
    freed.sort((a, b) => Number(a.at - b.at));
    let { taken } = this;
    for (const { units, at } of freed) {
      if (taken + cost <= this.limit) break;
      taken -= units;
      if (taken + cost <= this.limit) return ms(at - this.nowUs);
    }
    return 0;
  }
}

function windowed(
  limit: number,
  opened: (state: Counter | undefined, nowUs: bigint) => Open,
): WindowAlgorithm {
  const at = (state: Counter | undefined, nowUs: bigint) =>
    new Usage(limit, opened(state, nowUs), nowUs, state?.reserved);
  return {
    at,
    decide(state, nowUs, cost) {
      const now = at(state, nowUs);
      const allowed = now.taken + cost <= limit || cost === 0;
      const after = allowed ? now.with(now.used + cost) : now;
      const retryAfterMs = allowed ? 0 : now.roomInMs(cost);
      const next = allowed && cost > 0 ? after.state() : undefined;
      return { ...after.shown(), allowed, retryAfterMs, state: next };
    },
    charge(state, nowUs, cost) {
      const now = at(state, nowUs);
      const after = now.with(now.used + cost);
      const allowed = after.taken <= limit;
      return { ...after.shown(), allowed, retryAfterMs: after.roomInMs(0), state: after.state() };
    },
    refund(state, nowUs, cost) {
      const now = at(state, nowUs);
      return now.with(Math.max(0, now.used - cost)).state();
    },
  };
}

export function fixedWindow(limit: number, window: bigint, aligned: boolean): WindowAlgorithm {
  return windowed(limit, (state, at) => {
    const boundary = aligned ? at - (at % window) : at;
    const isOpen =
      state !== undefined &&
      state.used > 0 &&
      at < state.start + window &&
      (!aligned || state.start >= boundary);
    const { start, used } = isOpen ? state : { start: boundary, used: 0 };
    return { start, used, end: start + window };
  });
}

/** Makes a quota: a counter per calendar period, in UTC. */
export function calendar(limit: number, unit: string): WindowAlgorithm {
  const bounds = (at: bigint): [bigint, bigint] => {
    const date = new Date(Number(at / 1000n));
    const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
    const quarter = month - (month % 3);
    const monday = day - ((date.getUTCDay() + 6) % 7);
    const all: Record<string, [number, number]> = {
      day: [Date.UTC(year, month, day), Date.UTC(year, month, day + 1)],
      week: [Date.UTC(year, month, monday), Date.UTC(year, month, monday + 7)],
      month: [Date.UTC(year, month), Date.UTC(year, month + 1)],
      quarter: [Date.UTC(year, quarter), Date.UTC(year, quarter + 3)],
      year: [Date.UTC(year, 0), Date.UTC(year + 1, 0)],
    };
    const [start, end] = all[unit] as [number, number];
    return [BigInt(start) * 1000n, BigInt(end) * 1000n];
  };
  return windowed(limit, (state, at) => {
    const [start, end] = bounds(at);
    return { start, used: state?.start === start ? state.used : 0, end };
  });
}
