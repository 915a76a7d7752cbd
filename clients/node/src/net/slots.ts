/** The slot of a key, one of the 16,384 of a cluster: the CRC-16 (XMODEM) of its hash tag. */

const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

export function slotOf(key: string): number {
  const open = key.indexOf('{');
  const close = open < 0 ? -1 : key.indexOf('}', open + 1);
  const tag = close > open + 1 ? key.slice(open + 1, close) : key;
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc = ((crc << 8) & 0xffff) ^ (TABLE[(crc >> 8) ^ byte] as number);
  }
  return crc & 16_383;
}

/** The address of a node. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** The primary of each slot, as `host:port`. */
export type SlotMap = readonly (string | undefined)[];

const SLOTS = 16_384;

export function nameOf({ host, port }: Address): string {
  return `${host}:${port}`;
}

/** Returns the address in a redirection. Without a host, it is that of the node that redirects. */
export function addressOf(name: string, from: string): Address {
  const at = name.lastIndexOf(':');
  return { host: hostOr(name.slice(0, at), from), port: Number(name.slice(at + 1)) };
}

function hostOr(host: unknown, from: string): string {
  const isKnown = typeof host === 'string' && host !== '' && host !== '?';
  return isKnown ? host : from.slice(0, from.lastIndexOf(':'));
}

/**
 * Reads a reply of `CLUSTER SLOTS`.
 *
 * @param from The node that replied. A node may not know its own host.
 * @param translated Returns the name under which the application reaches an address.
 */
export function slotMapOf(
  reply: unknown,
  from: string,
  translated: (address: Address) => Address,
): SlotMap {
  const map: (string | undefined)[] = Array(SLOTS).fill(undefined);
  for (const range of reply as [unknown, unknown, [unknown, unknown]][]) {
    const [first, last, [host, port]] = range;
    const primary = translated({ host: hostOr(host, from), port: Number(port) });
    map.fill(nameOf(primary), Number(first), Number(last) + 1);
  }
  return map;
}
