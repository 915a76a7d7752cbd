/** Keys made of header fields. Parts are encoded, so that no two lists of values share a key. */
import { InvalidArgumentError } from '../rules/errors.js';
import { isHeaderName } from '../rules/headers.js';
import { withStatus } from './hits.js';

/** The header fields of a request of `node:http`, Express, Fastify or NestJS. */
export interface WithHeaders {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** The names and values in turn, as they arrived. */
  readonly rawHeaders?: readonly string[] | undefined;
  /** The request of `node:http`, which one of Fastify has. */
  readonly raw?: { readonly rawHeaders?: readonly string[] | undefined } | undefined;
}

/** Returns true if a field, whose name is in lower case, occurs more than once. */
export function isRepeated(rawHeaders: readonly string[] | undefined, field: string): boolean {
  const isField = (text: string, at: number) => at % 2 === 0 && text.toLowerCase() === field;
  return (rawHeaders ?? []).filter(isField).length > 1;
}

/**
 * Joins parts to one text. Parts are encoded: lists of the same length are equal only if all their
 * parts are, and lists of different lengths never are.
 */
export function joined(...parts: readonly string[]): string {
  return parts.map((part) => part.replaceAll('%', '%25').replaceAll('|', '%7C')).join('|');
}

/**
 * Returns a function that makes a key of the values of header fields: `acme|k1`. It returns
 * undefined if a field is missing or empty.
 *
 * @param read Returns the value of a field, whose name is in lower case. Undefined if it occurs
 * more than once, because the client would choose which of the values counts.
 */
export function headerKey<Incoming>(
  names: readonly string[],
  read: (incoming: Incoming, name: string) => string | null | undefined,
): (incoming: Incoming) => string | undefined {
  if (names.length === 0 || !names.every(isHeaderName)) {
    throw new InvalidArgumentError('headers', 'one or more names of header fields');
  }
  const fields = names.map((name) => name.toLowerCase());
  return (incoming) => {
    const parts: string[] = [];
    for (const field of fields) {
      const value: unknown = read(incoming, field);
      if (typeof value !== 'string' || value === '') return undefined;
      parts.push(value);
    }
    return joined(...parts);
  };
}

/**
 * Returns a key function that joins the values of one or more header fields, such as
 * `keyOf('X-Tenant', 'X-Api-Key')`. The values are encoded: two requests have the same key only if
 * all their fields are equal. A request without one of the fields, or with one more than once, has
 * no subject.
 *
 * @throws InvalidArgumentError without a name, or for one that no header field can have.
 */
export function keyOf(...headers: string[]): (request: WithHeaders) => string | undefined {
  return headerKey(headers, ({ headers, rawHeaders, raw }: WithHeaders, name) => {
    const value = headers[name];
    const [first, ...more] = typeof value === 'string' ? [value] : (value ?? []);
    if (more.length > 0 || isRepeated(rawHeaders ?? raw?.rawHeaders, name)) return undefined;
    return first;
  });
}

/**
 * Returns `keyOf` for a package whose key functions must return a text. A request without one of
 * the fields, or with one more than once, gets a 400 response.
 */
export function requiredKeyOf(
  headers: readonly string[],
  refused: () => Error = () =>
    withStatus(new InvalidArgumentError('key', 'each header field of the key once'), 400),
): (request: WithHeaders) => string {
  const key = keyOf(...headers);
  return (request) => {
    const found = key(request);
    if (found === undefined) throw refused();
    return found;
  };
}

/**
 * Returns a function for the option `keyGenerator` that joins the values of one or more header
 * fields, such as `keyOf('X-Tenant', 'X-Api-Key')`. The values are encoded: two requests have the
 * same key only if all their fields are equal. A request without one of the fields, or with one
 * more than once, gets a 400 response.
 *
 * @throws InvalidArgumentError without a name, or for one that no header field can have.
 */
export function storeKeyOf(...headers: string[]): (request: WithHeaders) => string {
  return requiredKeyOf(headers);
}
