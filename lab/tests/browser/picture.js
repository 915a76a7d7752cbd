// Writes a picture as a PNG with a palette: a third of the size of a screenshot, which has three
// bytes for each pixel.

import { writeFileSync } from 'node:fs';
import { deflateSync } from 'node:zlib';

const COLOURS = 256;

/** Runs in a page: returns the size, palette and pixels of a PNG. */
async function withPalette({ png, most }) {
  const bytes = Uint8Array.from(atob(png), (char) => char.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes]));
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext('2d');
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const colours = new Uint32Array(data.buffer);
  const counts = new Map();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const used = [...counts].sort((a, b) => b[1] - a[1]).map(([colour]) => colour);
  const split = (colour) => [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  const palette = used.slice(0, most).map(split);
  const distance = ([red, green, blue], other) =>
    (red - other[0]) ** 2 + (green - other[1]) ** 2 + (blue - other[2]) ** 2;
  const places = new Map(used.map((colour, at) => {
    if (at < most) return [colour, at];
    const rgb = split(colour);
    const nearest = palette.reduce((best, other, place) =>
      (distance(rgb, other) < distance(rgb, palette[best]) ? place : best), 0);
    return [colour, nearest];
  }));
  let pixels = '';
  for (const colour of colours) pixels += String.fromCharCode(places.get(colour));
  return { width, height, palette, pixels: btoa(pixels) };
}

function crc32(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** Writes a screenshot of a page to a file, with at most 256 colours. */
export async function writePicture(page, path) {
  const png = (await page.screenshot()).toString('base64');
  const source = { png, most: COLOURS };
  const { width, height, palette, pixels } = await page.evaluate(withPalette, source);
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  // A byte for each pixel, from a palette.
  head.set([8, 3, 0, 0, 0], 8);
  const indices = Buffer.from(pixels, 'base64');
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y += 1) {
    indices.copy(rows, y * (width + 1) + 1, y * width, (y + 1) * width);
  }
  writeFileSync(path, Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk('IHDR', head),
    chunk('PLTE', Buffer.from(palette.flat())),
    chunk('IDAT', deflateSync(rows, { level: 9 })),
    chunk('IEND', Buffer.alloc(0)),
  ]));
}
