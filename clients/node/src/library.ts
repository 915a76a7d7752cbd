/** The limiter as a library of functions and as a script, for servers without the module. */
import { createHash } from 'node:crypto';
import functions from '../../../functions/redis_throttle.lua';
import script from '../../../functions/redis_throttle_script.lua';

export { functions, script };

/** The library's own version. A newer library serves older callers. */
export const version: string = /VERSION = '([\d.]+)'/.exec(functions)?.[1] ?? '';

/** The name by which the server knows the script. */
export const scriptSha1: string = createHash('sha1').update(script).digest('hex');
