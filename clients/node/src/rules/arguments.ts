/** Validates what TypeScript checks and plain JavaScript does not. */
import { InvalidArgumentError } from './errors.js';

/** The types of options. An option of the type `any` is validated where it is used. */
const WORDS = {
  any: 'any value',
  text: 'text',
  flag: 'true or false',
  function: 'a function',
  signal: 'an AbortSignal',
  clock: 'a Clock',
} as const;

type Type = keyof typeof WORDS;

/** The types of the options of a function, by name. */
export type Types = ReadonlyMap<string, Type>;

/** Returns the types of options. `Options` makes the compiler demand each name. */
export function typesOf<Options>(types: { readonly [Name in keyof Options]-?: Type }): Types {
  return new Map(Object.entries<Type>(types));
}

/**
 * Validates the names and types of options. An option that is undefined counts as absent.
 *
 * @throws InvalidArgumentError that names the option.
 */
export function checkOptions(options: unknown, types: Types): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    const isCost = typeof options === 'number' && types.has('cost');
    const expected = isCost ? `an object, such as { cost: ${options} }` : 'an object';
    throw new InvalidArgumentError('options', expected);
  }
  for (const name in options) {
    const value = (options as Record<string, unknown>)[name];
    if (value === undefined) continue;
    const type = types.get(name);
    if (type === undefined) {
      const known = [...types.keys()].join(', ');
      const expected = known === '' ? 'no options' : `one of the options ${known}`;
      throw new InvalidArgumentError(name, expected);
    }
    if (!isOf(type, value)) throw new InvalidArgumentError(name, WORDS[type]);
  }
}

function isOf(type: Type, value: unknown): boolean {
  if (type === 'any') return true;
  if (type === 'text') return typeof value === 'string';
  if (type === 'flag') return typeof value === 'boolean';
  if (type === 'function') return typeof value === 'function';
  const methods = type === 'signal' ? ['throwIfAborted', 'addEventListener'] : ['nowMs', 'after'];
  return methods.every((name) => typeof (value as Record<string, unknown>)?.[name] === 'function');
}

/** Validates the limiter of a middleware or store. */
export function checkLimiter(limiter: { check: unknown }): void {
  if (typeof limiter?.check !== 'function') throw new InvalidArgumentError('limiter', 'a Limiter');
}
