#!/bin/sh
# Checks the spelling of all files with codespell. .codespellrc configures codespell, and lists the
# correct words that it would reject.
#
#   scripts/check-spelling.sh [FILE...]
#
# codespell is installed into .cache/venv/codespell, once for each version.
set -eu
cd "$(dirname "$0")/.."

codespell=2.4.3
venv=$PWD/.cache/venv/codespell

if [ "$(cat "$venv/version" 2>/dev/null)" != "$codespell" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "codespell==$codespell"
    echo "$codespell" >"$venv/version"
fi

# Outside of a Git repository, as in an unpacked archive, codespell itself finds the files.
if [ $# -eq 0 ] && git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard | xargs -0 "$venv/bin/codespell"
else
    "$venv/bin/codespell" "${@:-.}"
fi
