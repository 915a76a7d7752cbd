/** Keys: `prefix:rule:subject`, each part encoded, so that no two subjects share a key. */
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { InvalidArgumentError } from './errors.js';

/** The user, address or tenant that is limited: text, or an integer from 0 to 2^53 - 1. */
export type Subject = string | number;

/** Returns true for a subject: text that is not empty and has no half of a surrogate pair. */
export function isSubject(value: unknown): value is Subject {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value >= 0;
  return typeof value === 'string' && value !== '' && !LONE_SURROGATE.test(value);
}

/** Returns a subject as text: 7 and `7` are the same subject. */
export function textOf(subject: Subject): string {
  if (typeof subject === 'string') return subject;
  if (isSubject(subject)) return String(subject);
  throw new InvalidArgumentError('subject', 'text, or an integer from 0 to 2^53 - 1');
}

export interface KeyOptions {
  /** The first part of all keys. Default `rl`. If it is empty, keys begin with the rule. */
  prefix?: string | undefined;
  /**
   * `subject` puts the subject in braces, so that its keys under all rules are in one cluster slot.
   */
  hashTag?: 'subject' | undefined;
  /**
   * The secret, at least 16 characters, with which subjects and tags are hashed. Keys then contain
   * no raw data.
   */
  hmacSecret?: string | undefined;
}

/** The maximum length of an encoded part, in bytes. Longer parts are hashed. */
const LENGTH_MAX = 128;

/** The characters that would end a part or a hash tag, or are unreadable in a log. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the regex matches control characters
const SPECIAL = /[%:{} \u0000-\u001f\u007f]/g;

/** Matches a part that needs no encoding. Most subjects match, so they need only this one test. */
const PLAIN = /^[!-$&-9;-z|~]{1,128}$/;

/** The key of the hashes of a limiter without a secret. */
const PROCESS_KEY = randomBytes(32);

const LONE_SURROGATE = /\p{Surrogate}/u;

/** Builds the keys of one limiter. */
export class Keys {
  readonly #prefix: string;
  readonly #hashTag: 'subject' | undefined;
  readonly #secret: string | undefined;

  constructor({ prefix = 'rl', hashTag, hmacSecret }: KeyOptions = {}) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the regex matches control characters
    if (/[{}\s\u0000-\u001f\u007f]/.test(prefix)) {
      throw new InvalidArgumentError('prefix', 'no braces, spaces or controls');
    }
    if (hashTag !== undefined && hashTag !== 'subject') {
      throw new InvalidArgumentError('hashTag', 'subject or undefined');
    }
    if (hmacSecret !== undefined && Buffer.byteLength(hmacSecret) < 16) {
      throw new InvalidArgumentError('hmacSecret', 'at least 16 characters');
    }
    this.#prefix = prefix === '' ? '' : `${prefix}:`;
    this.#hashTag = hashTag;
    this.#secret = hmacSecret;
  }

  /** @param tag A hash tag for all keys of a call, instead of the limiter's own. */
  key(rule: string, subject: string, tag?: string): string {
    const encoded = this.part('subject', subject);
    const braced = this.#hashTag === 'subject' && tag === undefined;
    const front = tag === undefined ? '' : `{${this.part('tag', tag)}}:`;
    const name = rule.includes(':') ? encode(rule) : rule;
    return `${this.#prefix}${front}${name}:${braced ? `{${encoded}}` : encoded}`;
  }

  /**
   * Returns 16 hexadecimal digits of the subject's HMAC, for logs and metrics. Its key is the
   * secret, or random for each process: the plain hash of an address could be reversed.
   */
  keyHash(subject: string): string {
    const hash = createHmac('sha256', this.#secret ?? PROCESS_KEY);
    return hash.update(subject).digest('hex').slice(0, 16);
  }

  /**
   * Returns a part in the form that it has in a key. A hash begins with `:`, which no encoded part
   * does.
   */
  part(argument: string, text: string): string {
    if (typeof text !== 'string' || text === '') {
      throw new InvalidArgumentError(argument, 'a text that is not empty');
    }
    if (this.#secret === undefined && PLAIN.test(text)) return text;
    // All lone surrogates would be sent as the same character, and their subjects would share a
    // key.
    if (LONE_SURROGATE.test(text)) {
      throw new InvalidArgumentError(argument, 'well-formed text, without half a surrogate pair');
    }
    if (this.#secret !== undefined) {
      return `:${createHmac('sha256', this.#secret).update(text).digest('hex')}`;
    }
    const encoded = encode(text);
    if (encoded.length * 3 <= LENGTH_MAX || Buffer.byteLength(encoded) <= LENGTH_MAX)
      return encoded;
    return `:${createHash('sha256').update(text).digest('hex')}`;
  }
}

function encode(text: string): string {
  return text.replace(SPECIAL, (char) => {
    return `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
  });
}
