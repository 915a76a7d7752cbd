/** Warnings about the setup of an application, each emitted once. */

const emitted = new Set<string>();

/** Emits a warning unless one with this code was emitted before. */
export function warnOnce(code: string, message: string, cause?: unknown): void {
  if (emitted.has(code)) return;
  emitted.add(code);
  emit(code, message, cause);
}

const failed = new WeakSet<object>();
let failures = 0;
/** The maximum number of functions to warn about. A program may create one for each request. */
const MOST_FAILED = 100;

/** Emits a warning about a function of the application, once for each of the first functions. */
export function warnOnceOf(source: object, code: string, message: string, cause?: unknown): void {
  if (failed.has(source) || failures >= MOST_FAILED) return;
  failed.add(source);
  failures += 1;
  emit(code, message, cause);
}

function emit(code: string, message: string, cause: unknown): void {
  const detail = cause instanceof Error ? (cause.stack ?? cause.message) : undefined;
  process.emitWarning(message, { code, ...(detail === undefined ? {} : { detail }) });
}
