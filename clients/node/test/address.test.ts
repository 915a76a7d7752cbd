/** What proxies write into `X-Forwarded-For`, beside the shared cases. */
import { expect, it } from 'vitest';
import { ClientAddress } from '../src/address.js';

const address = new ClientAddress(['10.0.0.0/8']);

it.each([
  ['[198.51.100.1]', '198.51.100.1'],
  ['[198.51.100.1]:80', '198.51.100.1'],
  ['198.51.100.1:65535', '198.51.100.1'],
  ['\t198.51.100.1 ', '198.51.100.1'],
  ['198.51.100.1:99999', undefined],
  ['[2001:db8::1]:99999', undefined],
  ['[198.51.100.1', undefined],
  ['\u00a0198.51.100.1', undefined],
])('%j is %s', (written, expected) => {
  expect(address.subject('10.0.0.1', [written])).toBe(expected);
});
