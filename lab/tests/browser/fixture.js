// Starts what the tests need: the program on a free port, Chromium, and a server with the module.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];

export const DEADLINE_MS = 30_000;

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run make test-lab`);
  return value;
}

/** Ends a child process and waits for its end. */
async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill();
  await ended;
}

/** Starts the program of $RL_LAB on a free port. Returns its address and a way to end it. */
export async function startLab() {
  const child = spawn(required('RL_LAB'), ['page', '--listen', '127.0.0.1:0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const address = /http:\/\/127\.0\.0\.1:\d+/.exec(line);
    if (address !== null) return { address: address[0], end: () => end(child) };
  }
  throw new Error(`${process.env.RL_LAB} ended before it printed its address`);
}

export function startBrowser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: FLAGS,
  });
}

/** Starts a server with the module of $RL_MODULE on a Unix socket; `cli` sends it commands. */
export async function startServer() {
  const folder = mkdtempSync(join(tmpdir(), 'redis-throttle-lab-'));
  const socket = join(folder, 'socket');
  const child = spawn(process.env.SERVER || 'redis-server', [
    '--port', '0', '--unixsocket', socket, '--dir', folder, '--save', '',
    '--loadmodule', required('RL_MODULE'), '--rl.debug-commands', 'yes',
  ], { stdio: ['ignore', 'ignore', 'inherit'] });
  const deadline = Date.now() + DEADLINE_MS;
  while (!existsSync(socket)) {
    const isLate = child.exitCode !== null || Date.now() > deadline;
    if (isLate) throw new Error('the server did not start');
    await new Promise((done) => setTimeout(done, 20));
  }
  /** Sends commands, one on each line, and returns the lines of the replies. */
  const cli = (lines) => execFileSync('redis-cli', ['-s', socket], {
    input: `${lines.join('\n')}\n`,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  }).split('\n');
  return {
    cli,
    end: async () => {
      await end(child);
      rmSync(folder, { recursive: true });
    },
  };
}

/**
 * Opens the page in a context of its own. `trouble` collects console messages of errors, failed
 * requests and requests to another host.
 */
export async function openPage(browser, address, options = {}) {
  const { fragment = '', ...context } = options;
  const trouble = [];
  const opened = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...context });
  const page = await opened.newPage();
  page.setDefaultTimeout(DEADLINE_MS);
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') trouble.push(message.text());
  });
  page.on('pageerror', (error) => trouble.push(String(error)));
  page.on('requestfailed', (request) => trouble.push(`failed: ${request.url()}`));
  page.on('request', (request) => {
    const isOwn = request.url().startsWith(`${address}/`) || request.url().startsWith('data:');
    if (!isOwn) trouble.push(`another host: ${request.url()}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) trouble.push(`${response.status()}: ${response.url()}`);
  });
  await page.goto(`${address}/${fragment}`);
  await waitUntilReady(page);
  return { page, trouble, close: () => opened.close() };
}

/** Waits until the page shows the calls of its newest state, or its error. */
export async function waitUntilReady(page) {
  await page.waitForFunction(() => ['yes', 'error'].includes(document.body.dataset.ready));
}
