/** Tests the URLs that a limiter refuses. Those that it reaches are in the live tests. */
import { expect, it } from 'vitest';
import { Limiter, type UrlOptions } from '../src/index.js';
import { opened } from '../src/net/url.js';

const named = (argument: string) =>
  expect.objectContaining({ code: 'RL_INVALID_ARGUMENT', argument });

it.each([
  '',
  'secret',
  'redis:secret',
  'redis://:secret@host:0',
  'redis://:secret@host?db=one',
  'valkey+unix://host/secret',
  'http://:secret@host',
  'redis://:secret@host:port',
  'redis://:secret@host/one',
  'redis://:secret@host/0/1',
  'redis://:secret%@host',
  'redis://:secret@host#insecure',
  'unix:',
  'unix:secret',
  'unix://host/secret',
  'redis+unix:///path?db=secret',
])('a limiter refuses the URL "%s" and does not show it', (url) => {
  let error: unknown;
  try {
    Limiter.fromUrl(url);
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toEqual(named('url'));
  expect(String(error)).not.toContain('secret');
});

it.each([
  ['timeout', 'redis://host?timeout=5', {}],
  ['user', 'redis://host?user=u', {}],
  ['url', 'redis://host?db=1', { cluster: true }],
  ['password', 'unix:///path?password=p', {}],
  ['url', 'redis://host/1', { cluster: true }],
  ['url', 'unix:///path', { cluster: true }],
  ['cluster', 'redis://host', { cluster: 'yes' }],
  ['timeout', 'redis://host', { timeout: 5 }],
  ['options', 'redis://host', 5],
  ['url', 5, {}],
])('names the argument %s of %s', (argument, url, options) => {
  expect(() => Limiter.fromUrl(url as string, options as UrlOptions)).toThrow(named(argument));
});

it('a limiter of a URL needs a driver', () => {
  const none = (name: string) => {
    throw Object.assign(new Error(`no ${name}`), { code: 'MODULE_NOT_FOUND' });
  };
  expect(() => opened('redis://host', false, none)).toThrow('the package redis 5.9 or 6, or');
});

it.each([
  ['redis://', { host: 'localhost', port: 6379, db: 0 }],
  ['redis://:7911', { host: 'localhost', port: 7911 }],
  ['redis://:7911@host', { host: 'host', port: 6379, password: '7911' }],
  ['redis://u:p@:7911/2', { host: 'localhost', port: 7911, db: 2, username: 'u', password: 'p' }],
  ['valkey://host:1/2?db=3', { host: 'host', port: 1, db: 3 }],
  ['valkeys://:1?db=3', { host: 'localhost', port: 1, db: 3, tls: {} }],
  ['valkey+unix:///a/path?db=3', { path: '/a/path', db: 3 }],
])('reads the URL %s', (url, expected) => {
  let received: unknown;
  class Redis {
    constructor(options: object) {
      received = options;
    }
    on(): void {}
  }
  opened(url, false, (name) => (name === 'ioredis' ? { default: Redis } : {}));
  expect(received).toMatchObject(expected);
});

it('the older client of node-redis is passed over', () => {
  class Redis {
    on(): void {}
  }
  const load = (name: string) => (name === 'redis' ? { createClient: {} } : { default: Redis });
  expect(opened('redis://host', false, load).client).toBeInstanceOf(Redis);
});
