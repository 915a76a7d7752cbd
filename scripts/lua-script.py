#!/usr/bin/env python3
"""Joins functions/redis_throttle.lua from functions/parts/, and makes from it
functions/redis_throttle_script.lua, for EVALSHA, and the copies of both in clients/go/lua: a module
in Go can neither link to files nor read outside of it.

    scripts/lua-script.py            writes the files
    scripts/lua-script.py --check    fails if a committed file differs

The script is the library without comments and without its last section, which registers functions.
Instead, the script chooses the command by its first argument. Every call runs the script from the
top, and each function created there costs time: see with_functions_in_place.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "functions"
COPIES = ROOT / "clients/go/lua"
LIBRARY = FUNCTIONS / "redis_throttle.lua"
SCRIPT = FUNCTIONS / "redis_throttle_script.lua"
LAST_SECTION = "-- As a library ---"

# In this order: a part uses the names of those above it.
PARTS = """
    head wide_numbers grammar states
    algorithms gcra buckets fixed_window sliding_window backoff sliding_log by_name
    calls leases several commands
""".split()

HEAD = """\
-- redis-throttle without the module, as a script: EVALSHA sha 1 user:42 GCRA 6 10 60
-- Made by scripts/lua-script.py from functions/redis_throttle.lua: see the comments there.
"""

# The section where the functions begin. Each call of the script creates all of them, so the script
# wraps them in one function: they can access the variables of that function at less cost.
FIRST_SECTION = "-- Numbers beyond "
MIDDLE = "local function script()\n"
TAIL = """\
return run
end
return script()((ARGV[1] or ''):sub(1, 24):upper(), KEYS, ARGV, 2)
"""


def without_comments(text):
    lines = text.splitlines()
    kept = (line for line in lines if line.strip() and not line.lstrip().startswith(("--", "#!")))
    return "".join(f"{line}\n" for line in kept)


def with_functions_in_place(code):
    """Moves each function that is used once to its place of use, so that calls that do not reach
    this place do not create the function."""
    for found in re.findall(r"^local function \w+\([^)]*\)\n.*?^end\n", code, re.S | re.M):
        name, rest = re.match(r"local function (\w+)(.*)\n$", found, re.S).groups()
        others = code.replace(found, "")
        if found in code and len(re.findall(rf"\b{name}\b", others)) == 1:
            code = re.sub(rf"\b{name}\b", lambda _, rest=rest: f"(function{rest})", others)
    return code


def joined():
    """Joins the parts, and fails if a file among them has no place."""
    parts = FUNCTIONS / "parts"
    if sorted(PARTS) != sorted(path.stem for path in parts.iterdir()):
        sys.exit(f"{parts} has other files than PARTS of {__file__}")
    return "".join((parts / f"{name}.lua").read_text() for name in PARTS)


def script(library):
    code, found, _ = library.partition(LAST_SECTION)
    values, found_too, functions = code.partition(FIRST_SECTION)
    if not found or not found_too:
        sys.exit(f"{LIBRARY}: no line begins with {LAST_SECTION} or {FIRST_SECTION}")
    _heading, functions = functions.split("\n", 1)
    functions = with_functions_in_place(without_comments(functions))
    return HEAD + without_comments(values) + MIDDLE + functions + TAIL


def main():
    library = joined()
    made = {LIBRARY: library, SCRIPT: script(library), COPIES / LIBRARY.name: library}
    made[COPIES / SCRIPT.name] = made[SCRIPT]
    for path, text in made.items():
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path} is not the one that is made of {FUNCTIONS}/parts: run {__file__}")


if __name__ == "__main__":
    main()
