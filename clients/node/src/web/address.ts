/**
 * The address of a client: the peer's, or behind trusted proxies the rightmost address of
 * `X-Forwarded-For` that is not a trusted proxy. The leftmost address is not trusted by itself,
 * because the client can write anything there.
 */
import { BlockList, isIP, isIPv4 } from 'node:net';
import { InvalidArgumentError } from '../rules/errors.js';
import { warnOnce } from '../rules/warnings.js';

export class ClientAddress {
  readonly #ipv4 = new BlockList();
  /** Apart, because a list finds IPv4 addresses in `::/0`. */
  readonly #ipv6 = new BlockList();
  readonly #trustsUnix: boolean;

  /**
   * @param trustedProxies Addresses and networks, such as `10.0.0.0/8`; `unix` for a unix socket.
   */
  constructor(trustedProxies: readonly string[] = []) {
    if (!Array.isArray(trustedProxies)) {
      throw new InvalidArgumentError('trustedProxies', "an array, such as ['10.0.0.0/8']");
    }
    this.#trustsUnix = trustedProxies.includes('unix');
    for (const network of trustedProxies) {
      if (network !== 'unix') this.#add(String(network));
    }
  }

  /** Adds a network. One of mapped addresses is an IPv4 network, as its addresses are IPv4. */
  #add(network: string): void {
    const [text = '', bits, more] = network.split('/');
    const address = canonical(text);
    const widest = isIP(text) === 4 ? 32 : 128;
    const written = bits === undefined ? widest : Number(bits);
    const hasZone = bits !== undefined && text.includes('%');
    const fits = /^(0|[1-9]\d*)$/.test(bits ?? '0') && written <= widest && !hasZone;
    if (address === undefined || !fits || more !== undefined) throw refused();
    const length = isIPv4(address) ? written - (widest - 32) : written;
    if (length < 0) throw refused();
    if (isIPv4(address)) this.#ipv4.addSubnet(address, length, 'ipv4');
    else this.#ipv6.addSubnet(address, length, 'ipv6');
  }

  /**
   * Returns the client's address as a subject; for IPv6, its /64 network. Undefined if there is no
   * address, or if a trusted proxy sends an entry that is not an address.
   *
   * @param peer The socket's remote address; that of a Unix socket is undefined or empty.
   * @param forwarded All `X-Forwarded-For` fields, in their order.
   */
  subject(peer: string | undefined, forwarded: readonly string[]): string | undefined {
    const from = peer ? withoutPort(peer) : undefined;
    const trusted = peer ? from !== undefined && this.#has(from) : this.#trustsUnix;
    let address = from;
    const entries = /^[ \t]*$/.test(forwarded.join(',')) ? [] : forwarded.join(',').split(',');
    if (trusted) {
      for (const entry of entries.reverse()) {
        address = withoutPort(entry.replace(/^[ \t]+|[ \t]+$/g, ''));
        if (address === undefined || !this.#has(address)) break;
      }
    }
    return address === undefined ? undefined : cut(address);
  }

  /**
   * Returns the subject of a client: its address, or `peer:` for all peers that have no address,
   * such as a Unix socket, whose name would be the client's choice. Undefined if the peer has gone,
   * or if a trusted proxy sends an entry that is not an address.
   *
   * @param peer The socket's remote address; null if the client has left.
   */
  client(peer: string | null | undefined, forwarded: readonly string[]): string | undefined {
    if (peer === null) return undefined;
    const found = this.subject(peer, forwarded);
    if (found !== undefined || (peer && withoutPort(peer) !== undefined)) return found;
    const isNamed = !/^[ \t,]*$/.test(forwarded.join(','));
    if (!peer && this.#trustsUnix && isNamed) return undefined;
    warnOnce('RL_PEER', NO_ADDRESS);
    return 'peer:';
  }

  #has(address: string): boolean {
    return isIPv4(address) ? this.#ipv4.check(address) : this.#ipv6.check(address, 'ipv6');
  }
}

const NO_ADDRESS =
  'a peer has no address, so its requests share one limit: trust the proxy `unix` if it is one ' +
  'on a Unix socket, or set `key`.';

function refused(): InvalidArgumentError {
  return new InvalidArgumentError('trustedProxies', 'addresses and networks, such as 10.0.0.0/8');
}

/** Returns the canonical form of an address that may have a port, or brackets and a port. */
function withoutPort(text: string): string | undefined {
  const [, inBrackets, beforePort, port = '0'] =
    /^(?:\[([^\]]*)\]|([\d.]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (Number(port) > 65_535) return undefined;
  return canonical(inBrackets ?? beforePort ?? text);
}

/**
 * Returns an address in Node's form, without its zone, which names a link of this host. The mapped
 * address `::ffff:a.b.c.d` is IPv4. Undefined for other text, such as IPv4 with a zone.
 */
function canonical(text: string): string | undefined {
  if (isIPv4(text)) return text;
  const address = text.replace(/%[^%]+$/, '');
  if (isIP(address) !== 6 || address.includes('%')) return undefined;
  const written = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  return embedded(MAPPED, written) ?? written;
}

/** Matches the addresses of `::ffff:0:0/96`, under which a socket of both families has IPv4. */
const MAPPED = /^::ffff:([\da-f]{1,4}):([\da-f]{1,4})$/;
/** Matches the addresses of `64:ff9b::/96`, under which a NAT64 gateway has IPv4 (RFC 6052). */
const NAT64 = /^64:ff9b::(?:([\da-f]{1,4}):)?([\da-f]{1,4})?$/;

/** Returns the IPv4 address in the last 32 bits of an address that the form matches. */
function embedded(form: RegExp, address: string): string | undefined {
  const groups = form.exec(address);
  if (groups === null) return undefined;
  const [high, low] = [groups[1], groups[2]].map((group) => Number.parseInt(group ?? '0', 16)) as [
    number,
    number,
  ];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/**
 * Returns an IPv6 address as its /64 network, which belongs to one client: `2001:db8:1:2::/64`. An
 * address of NAT64 is the IPv4 address in it, because one /64 has all clients behind the gateway.
 */
function cut(address: string): string {
  if (isIPv4(address)) return address;
  const translated = embedded(NAT64, address);
  if (translated !== undefined) return translated;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? 0 : 8 - groups.length - after.length;
  const all = [...groups, ...Array<string>(zeros).fill('0'), ...after];
  const network = new URL(`http://[${all.slice(0, 4).join(':')}::]/`).hostname.slice(1, -1);
  return `${network}/64`;
}
