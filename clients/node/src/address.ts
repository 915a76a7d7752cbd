/**
 * The address of a client: the peer's, or behind trusted proxies the rightmost address of
 * `X-Forwarded-For` that is not a trusted proxy. The leftmost address is not trusted by itself,
 * because the client can write anything there.
 */
import { BlockList, isIP, isIPv4 } from 'node:net';
import { InvalidArgumentError } from './errors.js';

export class ClientAddress {
  readonly #trusted = new BlockList();
  readonly #trustsUnix: boolean;

  /**
   * @param trustedProxies Addresses and networks, such as `10.0.0.0/8`; `unix` for a unix socket.
   */
  constructor(trustedProxies: readonly string[] = []) {
    this.#trustsUnix = trustedProxies.includes('unix');
    for (const network of trustedProxies) {
      if (network !== 'unix') this.#add(network);
    }
  }

  #add(network: string): void {
    const [address = '', bits, more] = network.split('/');
    const family = isIP(address);
    const length = bits === undefined ? (family === 6 ? 128 : 32) : Number(bits);
    const fits = /^\d+$/.test(bits ?? '0') && length <= (family === 6 ? 128 : 32);
    if (family === 0 || !fits || more !== undefined) {
      throw new InvalidArgumentError(
        'trustedProxies',
        'addresses and networks, such as 10.0.0.0/8',
      );
    }
    this.#trusted.addSubnet(address, length, family === 6 ? 'ipv6' : 'ipv4');
  }

  /**
   * Returns the client's address as a subject; for IPv6, its /64 network. Undefined if there is no
   * address, or if a trusted proxy sends an entry that is not an address.
   *
   * @param peer The socket's remote address.
   * @param forwarded All `X-Forwarded-For` fields, in their order.
   */
  subject(peer: string | undefined, forwarded: readonly string[]): string | undefined {
    const from = peer === undefined ? undefined : plain(peer);
    const trusted = peer === undefined ? this.#trustsUnix : from !== undefined && this.#has(from);
    let address = from;
    const entries = /^[ \t]*$/.test(forwarded.join(',')) ? [] : forwarded.join(',').split(',');
    if (trusted) {
      for (const entry of entries.reverse()) {
        address = plain(entry.replace(/^[ \t]+|[ \t]+$/g, ''));
        if (address === undefined || !this.#has(address)) break;
      }
    }
    return address === undefined ? undefined : cut(address);
  }

  #has(address: string): boolean {
    return this.#trusted.check(address, isIPv4(address) ? 'ipv4' : 'ipv6');
  }
}

/** Returns an address in Node's form: without port, brackets and zone; `::ffff:a.b.c.d` as IPv4. */
function plain(text: string): string | undefined {
  const [, inBrackets, beforePort, port = '0'] =
    /^(?:\[([^\]]*)\]|([\d.]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (Number(port) > 65_535) return undefined;
  const address = (inBrackets ?? beforePort ?? text).replace(/%.*$/, '');
  if (isIPv4(address)) return address;
  if (isIP(address) === 0) return undefined;
  const canonical = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  const mapped = /^::ffff:([\da-f]{1,4}):([\da-f]{1,4})$/.exec(canonical);
  if (mapped === null) return canonical;
  const [high, low] = [
    Number.parseInt(mapped[1] as string, 16),
    Number.parseInt(mapped[2] as string, 16),
  ];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/** Returns an IPv6 address as its /64 network, which belongs to one client: `2001:db8:1:2::/64`. */
function cut(address: string): string {
  if (isIPv4(address)) return address;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? 0 : 8 - groups.length - after.length;
  const all = [...groups, ...Array<string>(zeros).fill('0'), ...after];
  const network = new URL(`http://[${all.slice(0, 4).join(':')}::]/`).hostname.slice(1, -1);
  return `${network}/64`;
}
