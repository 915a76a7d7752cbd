#!/bin/sh
# Checks the subjects of the commits after START: `area: imperative` within 72 columns.
#
#   scripts/check-commits.sh [START]
#
# The area is in lower case and may contain `/`, the rest begins in lower case: `clients/node: report
# NOPERM on every back end`. Merges are not checked. Without a history that reaches START, as in an
# archive or a shallow clone, it checks nothing and says so.
set -eu

start=${1:-77e9af99f795084c9003302355f716d292fda75f}
most_columns=72

if ! git merge-base --is-ancestor "$start" HEAD 2>/dev/null; then
    echo "Commit subjects: not checked, because the history here does not reach $start."
    exit 0
fi
git log --no-merges --format='%h %s' "$start..HEAD" | LC_ALL=C awk -v most="$most_columns" '
    {
        hash = $1
        subject = substr($0, length(hash) + 2)
        # A character of several bytes is one column.
        columns = subject
        gsub(/[\200-\277]/, "", columns)
        if (length(columns) > most)
            reason = "has " length(columns) " columns: expected at most " most
        else if (subject !~ /^[a-z0-9._-]+(\/[a-z0-9._-]+)*: [a-z]/)
            reason = "is invalid: expected `area: imperative` in lower case"
        else
            next
        printf "redis-throttle: the subject of %s %s: %s\n", hash, reason, subject
        failed = 1
    }
    END {
        if (!failed) printf "Commit subjects: %d are valid.\n", NR
        exit failed
    }'
