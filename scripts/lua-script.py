#!/usr/bin/env python3
"""Makes functions/redis_throttle_script.lua of functions/redis_throttle.lua, for EVALSHA.

    scripts/lua-script.py            writes it
    scripts/lua-script.py --check    fails where the one in the repository is another

The script is the library up to its last section, which registers functions; in its place stands
what tells the command by the first argument. Comments are left out, but for those at the top.
"""

import sys
from pathlib import Path

FUNCTIONS = Path(__file__).resolve().parent.parent / "functions"
LIBRARY = FUNCTIONS / "redis_throttle.lua"
SCRIPT = FUNCTIONS / "redis_throttle_script.lua"
LAST_SECTION = "-- As a library ---"

HEAD = """\
-- redis-throttle without the module, as a script: EVALSHA sha 1 user:42 GCRA 6 10 60
-- Made by scripts/lua-script.py of functions/redis_throttle.lua, which says all there is to say.
"""

TAIL = "return run((ARGV[1] or ''):upper(), KEYS, ARGV, 2)\n"


def script(library):
    code, found, _ = library.partition(LAST_SECTION)
    if not found:
        sys.exit(f"{LIBRARY}: no line begins with {LAST_SECTION}")
    _shebang, *lines = code.splitlines()
    kept = (line for line in lines if line.strip() and not line.lstrip().startswith("--"))
    return HEAD + "".join(f"{line}\n" for line in kept) + TAIL


def main():
    made = script(LIBRARY.read_text())
    if sys.argv[1:] == ["--check"]:
        if SCRIPT.read_text() != made:
            sys.exit(f"{SCRIPT} is not the one that is made of {LIBRARY}: run {__file__}")
    else:
        SCRIPT.write_text(made)


if __name__ == "__main__":
    main()
