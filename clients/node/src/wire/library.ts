/** The library, as functions and as a script, for servers without the module. */
import { createHash } from 'node:crypto';
import functions from '../../../../functions/redis_throttle.lua';
import script from '../../../../functions/redis_throttle_script.lua';

export { functions, script };

/** The version of the library. A newer library also serves older clients. */
export const version: string = /VERSION = '([\d.]+)'/.exec(functions)?.[1] ?? '';

/** The hash by which the server knows the script. */
export const scriptSha1: string = createHash('sha1').update(script).digest('hex');
