/** Keys made of header fields. Parts are encoded, so that no two lists of values share a key. */
import { InvalidArgumentError } from './errors.js';
import { isHeaderName } from './headers.js';
import { withStatus } from './hits.js';

/** The header fields of a request of `node:http`, Express, Fastify or NestJS. */
export interface WithHeaders {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
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
 * @param read Returns the value of a field, whose name is in lower case.
 */
export function headerKey<Incoming>(
  names: readonly string[],
  read: (incoming: Incoming, name: string) => string | readonly string[] | null | undefined,
): (incoming: Incoming) => string | undefined {
  if (names.length === 0 || !names.every(isHeaderName)) {
    throw new InvalidArgumentError('headers', 'one or more names of header fields');
  }
  const fields = names.map((name) => name.toLowerCase());
  return (incoming) => {
    const parts: string[] = [];
    for (const field of fields) {
      const value = read(incoming, field);
      const text: unknown = Array.isArray(value) ? value.join(', ') : value;
      if (typeof text !== 'string' || text === '') return undefined;
      parts.push(text);
    }
    return joined(...parts);
  };
}

/**
 * Returns a key function that joins the values of one or more header fields, such as
 * `keyOf('X-Tenant', 'X-Api-Key')`. The values are encoded: two requests have the same key only if
 * all their fields are equal. A request without one of the fields has no subject.
 *
 * @throws InvalidArgumentError without a name, or for one that no header field can have.
 */
export function keyOf(...headers: string[]): (request: WithHeaders) => string | undefined {
  return headerKey(headers, (request: WithHeaders, name) => request.headers[name]);
}

/**
 * Returns `keyOf` for a package whose key functions must return a text. A request without one of
 * the fields is answered 400.
 */
export function requiredKeyOf(
  headers: readonly string[],
  refused: () => Error = () =>
    withStatus(new InvalidArgumentError('key', 'all header fields of the key'), 400),
): (request: WithHeaders) => string {
  const key = keyOf(...headers);
  return (request) => {
    const found = key(request);
    if (found === undefined) throw refused();
    return found;
  };
}
