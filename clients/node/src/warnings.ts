/** Warnings about the setup of an application, each emitted once per process. */

const emitted = new Set<string>();

/** Emits a warning unless one with this code was emitted before. */
export function warnOnce(code: string, message: string, cause?: unknown): void {
  if (emitted.has(code)) return;
  emitted.add(code);
  const detail = cause instanceof Error ? (cause.stack ?? cause.message) : undefined;
  process.emitWarning(message, { code, ...(detail === undefined ? {} : { detail }) });
}
