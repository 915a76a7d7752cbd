/** Keys: `prefix:rule:subject`, each part encoded, so that no two subjects can meet in one key. */
import { createHash, createHmac } from 'node:crypto';
import { ArgumentError } from './errors.js';

export interface KeyOptions {
  /** What all keys begin with. Default `rl`; empty: nothing. */
  prefix?: string | undefined;
  /** `subject`: the subject in braces, so that in a cluster all rules of one lie in one slot. */
  hashTag?: 'subject' | undefined;
  /** Hashes subjects and tags under this secret, of at least 16 characters: no raw data in keys. */
  hmacSecret?: string | undefined;
}

/** Longer ones are hashed. In bytes, encoded. */
const LENGTH_MAX = 128;

/** What would end a part or a hash tag, or could not be read in a log. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: controls are what it looks for
const SPECIAL = /[%:{} \u0000-\u001f\u007f]/g;

/** What stands in a key as it is: most subjects, told by one look. */
const PLAIN = /^[!-$&-9;-z|~]{1,128}$/;

const LONE_SURROGATE = /\p{Surrogate}/u;

/** Builds the keys of one limiter. */
export class Keys {
  readonly #prefix: string;
  readonly #hashTag: 'subject' | undefined;
  readonly #secret: string | undefined;

  constructor({ prefix = 'rl', hashTag, hmacSecret }: KeyOptions = {}) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: controls are what it looks for
    if (/[{}\s\u0000-\u001f\u007f]/.test(prefix)) {
      throw new ArgumentError('prefix', 'no brace, no space and no control in it');
    }
    if (hashTag !== undefined && hashTag !== 'subject') {
      throw new ArgumentError('hashTag', 'subject, or none');
    }
    if (hmacSecret !== undefined && Buffer.byteLength(hmacSecret) < 16) {
      throw new ArgumentError('hmacSecret', 'at least 16 characters');
    }
    this.#prefix = prefix === '' ? '' : `${prefix}:`;
    this.#hashTag = hashTag;
    this.#secret = hmacSecret;
  }

  /** @param tag One hash tag for all keys of a call, in place of the limiter's own. */
  key(rule: string, subject: string, tag?: string): string {
    const encoded = this.part('subject', subject);
    const braced = this.#hashTag === 'subject' && tag === undefined;
    const front = tag === undefined ? '' : `{${this.part('tag', tag)}}:`;
    const name = rule.includes(':') ? encode(rule) : rule;
    return `${this.#prefix}${front}${name}:${braced ? `{${encoded}}` : encoded}`;
  }

  /** 16 hexadecimal digits for logs and metrics; keyed where there is a secret. */
  subjectHash(subject: string): string {
    const secret = this.#secret;
    const hash = secret === undefined ? createHash('sha256') : createHmac('sha256', secret);
    return hash.update(subject).digest('hex').slice(0, 16);
  }

  /**
   * A subject as it stands in a key. What is hashed begins with `:`, which nothing encoded does.
   */
  part(argument: string, text: string): string {
    if (typeof text !== 'string' || text === '') {
      throw new ArgumentError(argument, 'a text that is not empty');
    }
    if (this.#secret === undefined && PLAIN.test(text)) return text;
    // All half pairs would be sent as one and the same character.
    if (LONE_SURROGATE.test(text)) {
      throw new ArgumentError(argument, 'a text that can be sent: no half of a surrogate pair');
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
