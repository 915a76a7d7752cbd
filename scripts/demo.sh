#!/bin/sh
# Shows seven algorithms with the same traffic side by side, then a short session of every command.
#
#   scripts/demo.sh MODULE
#
# $ONLY names one command, such as gcra, and shows its session alone. $SERVER replaces redis-server.
# The server listens only on a unix socket. The module's clock is frozen, so that every run prints
# the same.
set -eu

module=$(readlink -f "$1")
server=${SERVER:-redis-server}
start_us=1767225600000000

fail() {
    printf '%s\n' "redis-throttle: $*" >&2
    exit 1
}

# The sessions, in the order in which they are printed.
sessions='gcra fixed sliding slidinglog tokenbucket leakybucket backoff quota peek charge block all lease
    reserve use top errors'

# Prints the session that shows the command $1, such as gcra or RL.GCRA.
session_of() {
    name=$(printf '%s\n' "$1" | tr '[:upper:]' '[:lower:]')
    case ${name#rl.} in
    table) echo table ;;
    inspect) echo peek ;;
    refund) echo charge ;;
    peekall) echo all ;;
    renew | release) echo lease ;;
    commit | cancel) echo reserve ;;
    policy | metrics) echo use ;;
    *)
        for known in $sessions; do
            [ "${name#rl.}" != "$known" ] || echo "$known"
        done
        ;;
    esac
}

selected="table $sessions"
if [ -n "${ONLY:-}" ]; then
    selected=$(session_of "$ONLY")
    [ -n "$selected" ] || fail "unknown command $ONLY: expected table or one of" $sessions
fi

directory=$(mktemp -d)
socket=$directory/redis.sock
log=$directory/server.log

"$server" --port 0 --unixsocket "$socket" --dir "$directory" --logfile "$log" \
    --save '' --appendonly no --loadmodule "$module" --rl.debug-commands yes &
pid=$!

stop() {
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    rm -rf "$directory"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP PIPE

until redis-cli -s "$socket" PING >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null; then
        echo "The server did not start:" >&2
        cat "$log" >&2
        exit 1
    fi
    sleep 0.1
done

quietly() {
    redis-cli -s "$socket" "$@" >/dev/null
}

say() {
    printf '\n%s\n\n' "$1"
}

# Prints a call and its reply as redis-cli shows it on a terminal.
show() {
    echo "  > $*"
    redis-cli -s "$socket" --no-raw "$@" | sed '/^$/d; s/^/  /'
}

# Prints a call and its integers on one line.
row() {
    reply=$(redis-cli -s "$socket" "$@" | paste -s -d ' ' -)
    printf '  > %-50s %s\n' "$*" "$reply"
}

# Prints a call with two rules, each of which is one argument.
two_rows() {
    printf '  > %s %s "%s" %s "%s"\n' "$@"
    # shellcheck disable=SC2046 # one integer for each place
    printf '    %s %s %s %s %s   rule %s   [%s %s %s %s %s] [%s %s %s %s %s]\n' \
        $(redis-cli -s "$socket" "$@")
}

show_table() {
    say "Seven algorithms with the same traffic. Six have a limit of 5 per 10 seconds. BACKOFF has 5 free
attempts, then delays of 1 s, 2 s, 4 s and so on, and resets after 10 s without an attempt. There is one
call at 0 s, six at 9 s, six at 10 s, then one per second. '#' is allowed, '.' is denied, and a digit of
the leaky bucket is allowed after that many seconds. The last column is the most calls allowed in any
10 seconds."

    for second in 0 9 9 9 9 9 9 10 10 10 10 10 10 11 12 13 14 15 16 17 18 19 20; do
        redis-cli -s "$socket" RL.DEBUG CLOCK FREEZE $((start_us + second * 1000000)) >/dev/null
        for rule in 'FIXED 5 10' 'SLIDING 5 10' 'SLIDINGLOG 5 10' \
            'TOKENBUCKET 5 5 10' 'LEAKYBUCKET 5 5 10' 'GCRA 5 5 10' 'BACKOFF 5 1s 8s 10s'; do
            # shellcheck disable=SC2086 # the arguments of a rule are separate words
            set -- $rule
            algorithm=$1
            shift
            # shellcheck disable=SC2046 # five integers
            set -- $(redis-cli -s "$socket" "RL.$algorithm" "traffic:$algorithm" "$@")
            echo "$algorithm $second $1 $4"
        done
    done | awk '
        !($1 in calls) { order[++rules] = $1 }
        {
            call = ++calls[$1]
            second[call] = $2
            allowed[$1, call] = $3
            mark[$1, call] = !$3 ? "." : $1 == "LEAKYBUCKET" ? $4 / 1000 : "#"
        }
        # Returns the largest number of calls that a rule allowed in any ten seconds.
        function densest(rule, total,    first, call, sum, most) {
            for (first = 1; first <= total; first++) {
                sum = 0
                for (call = first; call <= total && second[call] < second[first] + 10; call++)
                    sum += allowed[rule, call]
                if (sum > most) most = sum
            }
            return most
        }
        END {
            total = calls[order[1]]
            printf "  %-11s", "second"
            for (call = 1; call <= total; call++) printf "%3d", second[call]
            printf "  total  most/10 s\n"
            for (rule = 1; rule <= rules; rule++) {
                name = order[rule]
                printf "  %-11s", name
                sum = 0
                for (call = 1; call <= total; call++) {
                    printf "%3s", mark[name, call]
                    sum += allowed[name, call]
                }
                printf "  %5d  %9d\n", sum, densest(name, total)
            }
        }'

    say "How to read it:

  FIXED        a new window at 10 s forgets the previous one: 9 calls within two seconds
  SLIDING      the previous window fades out, so the 5 return one by one
  SLIDINGLOG   never more than 5 in any 10 s, so it has the longest wait
  TOKENBUCKET  a full bucket at 9 s, then one token every two seconds
  LEAKYBUCKET  decides as the token bucket does, and spreads the allowed calls over time
  GCRA         decides as the token bucket does, with one timestamp of state
  BACKOFF      the free attempts, then one after 1 s, after 2 s and after 4 s"
}

show_gcra() {
    say "RL.GCRA key burst rate period: six at once, then ten per minute. The reply, field by field:"
    echo "  > RL.GCRA user:42 6 10 60"
    redis-cli -s "$socket" --no-raw RL.GCRA user:42 6 10 60 | awk '
        BEGIN {
            split("allowed: 1 yes, 0 no|limit: the burst|remaining, right now|" \
                "retry_after_ms: 0, it was allowed|reset_after_ms: until all six are back", meaning, "|")
        }
        { printf "  %-24s %s\n", $0, meaning[NR] }'

    say "Six more at the same instant. From here on, the five integers are on one line:"
    for _ in 1 2 3 4 5 6; do
        row RL.GCRA user:42 6 10 60
    done

    say "The last call was denied, with a retry after 6000 ms. That is exact:"
    row RL.DEBUG CLOCK ADVANCE 5999ms
    row RL.GCRA user:42 6 10 60
    row RL.DEBUG CLOCK ADVANCE 1ms
    row RL.GCRA user:42 6 10 60
}

show_fixed() {
    say "RL.FIXED key limit window: three per hour, from the first call on. A call of cost 2 is denied as a
whole if one unit is left:"
    row RL.FIXED sms:42 3 1h
    row RL.DEBUG CLOCK ADVANCE 20m
    row RL.FIXED sms:42 3 1h
    row RL.FIXED sms:42 3 1h COST 2

    say "With ALIGNED the window ends at the full hour, whenever the first call comes:"
    row RL.FIXED export:42 3 1h ALIGNED
}

show_sliding() {
    say "RL.SLIDING key limit window: the usage of the previous minute fades out during this one:"
    row RL.SLIDING search:42 100 60 COST 40
    row RL.DEBUG CLOCK ADVANCE 90s
    row RL.SLIDING search:42 100 60 COST 80
    row RL.SLIDING search:42 100 60
    row RL.DEBUG CLOCK ADVANCE 1500ms
    row RL.SLIDING search:42 100 60
}

show_slidinglog() {
    say "RL.SLIDINGLOG key limit window: exact. Each unit returns one window after its call:"
    row RL.SLIDINGLOG mail:42 2 10
    row RL.DEBUG CLOCK ADVANCE 4s
    row RL.SLIDINGLOG mail:42 2 10
    row RL.SLIDINGLOG mail:42 2 10
    say "With SLOTS 16 a log of any limit has at most 17 entries that count, each rounded up to window / 16:"
    row RL.SLIDINGLOG api:42 1000 10 SLOTS 16
}

show_tokenbucket() {
    say "RL.TOKENBUCKET key capacity rate period: 30 tokens, 30 new ones per minute, 20 per call:"
    row RL.TOKENBUCKET upload:42 30 30 60 COST 20
    row RL.TOKENBUCKET upload:42 30 30 60 COST 20
    row RL.DEBUG CLOCK ADVANCE 10s
    row RL.TOKENBUCKET upload:42 30 30 60 COST 20

    say "A cost above the limit can never be allowed. Field 4 is then -1:"
    row RL.TOKENBUCKET upload:42 30 30 60 COST 31

    say "With PARTIAL a call takes the units that are left, up to its cost. Field 1 is their number:"
    for _ in 1 2 3; do
        row RL.TOKENBUCKET batch:42 10 10 60 COST 8 PARTIAL
    done

    say "With LEAVE a call is allowed only if that much remains for others afterwards:"
    row RL.TOKENBUCKET job:42 10 10 60 COST 5 LEAVE 50%
    row RL.TOKENBUCKET job:42 10 10 60 COST 1 LEAVE 50%
}

show_leakybucket() {
    say "RL.LEAKYBUCKET key capacity rate period: a queue. Field 4 of an allowed call is its wait:"
    for _ in 1 2 3 4 5; do
        row RL.LEAKYBUCKET webhook:42 4 2 1
    done
}

show_backoff() {
    say "RL.BACKOFF key attempts base max forget: three attempts are free, then each wait is twice the one
before. RL.CHARGE counts an attempt that came too early, which restarts the delay:"
    for _ in 1 2 3 4; do
        row RL.BACKOFF login:42 3 1s 8s 1h
    done
    row RL.DEBUG CLOCK ADVANCE 1s
    row RL.BACKOFF login:42 3 1s 8s 1h
    row RL.PEEK login:42 BACKOFF 3 1s 8s 1h
    row RL.CHARGE login:42 BACKOFF 3 1s 8s 1h
}

show_quota() {
    say "RL.QUOTA key limit unit: a thousand a day in the time zone of Berlin. This day has 23 hours, and half
an hour of it has passed:"
    row RL.DEBUG CLOCK FREEZE 1774740600000000
    row RL.QUOTA export:7 1000 day ZONE Europe/Berlin
}

show_peek() {
    say "RL.PEEK replies as the call would, and changes nothing. COST 0 only queries the status:"
    row RL.GCRA user:42 6 10 60
    row RL.PEEK user:42 GCRA 6 10 60
    row RL.PEEK user:42 GCRA 6 10 60 COST 0

    say "RL.INSPECT shows the state itself:"
    show RL.INSPECT user:42
}

show_charge() {
    say "Estimate, then settle: 800 are taken, and the real cost is 1100. RL.CHARGE takes the rest even if it
is not available. Field 4 is the time until the debt is paid, and calls are denied until then:"
    row RL.TOKENBUCKET model:42 900 900 60 COST 800
    row RL.CHARGE model:42 TOKENBUCKET 900 900 60 COST 300
    row RL.TOKENBUCKET model:42 900 900 60

    say "The real cost is 850 after all: RL.REFUND returns the difference, never beyond the full allowance:"
    row RL.REFUND model:42 TOKENBUCKET 900 900 60 COST 250
}

show_block() {
    say "RL.BLOCK bans a key: every rule denies it until the ban ends. It forgives what the key owed; DEL lifts it:"
    row RL.FIXED user:7 10 60 COST 4
    show RL.BLOCK user:7 1h
    row RL.FIXED user:7 10 60
    show RL.INSPECT user:7
    show DEL user:7
    row RL.FIXED user:7 10 60
}

show_all() {
    say "RL.ALL takes from all of its rules or from none. After the five integers come the number of the rule
that they are from, and a row for each rule. The second call is denied by rule 2, and rule 1 loses
nothing:"
    for _ in 1 2; do
        two_rows RL.ALL '{7}:user' 'GCRA 6 10 60' '{7}:tenant' 'FIXED 8 60 COST 5'
    done

    say "RL.PEEKALL reads several rules, and takes nothing:"
    two_rows RL.PEEKALL '{7}:user' 'GCRA 6 10 60' '{7}:tenant' 'FIXED 8 60 COST 3'
}

show_lease() {
    say "RL.LEASE key id limit ttl: at most three hold a permit, and the permit of a dead holder expires:"
    for job in 1 2 3 4; do
        row RL.LEASE exports:7 job-$job 3 60s
    done
    row RL.RENEW exports:7 job-1 90s
    row RL.RELEASE exports:7 job-2
    row RL.LEASE exports:7 job-4 3 60s
    show RL.INSPECT exports:7
    row RL.DEBUG CLOCK ADVANCE 60s
    row RL.RENEW exports:7 job-3 60s
    row RL.LEASE exports:7 job-5 3 60s
}

show_reserve() {
    say "RL.RESERVE holds the estimated cost of a job. RL.COMMIT settles the real cost, once, even if it is
repeated:"
    row RL.RESERVE rows:42 job-1 5m FIXED 1000 60 COST 700
    row RL.RESERVE rows:42 job-2 5m FIXED 1000 60 COST 400
    row RL.COMMIT rows:42 job-1 FIXED 1000 60 COST 450
    row RL.COMMIT rows:42 job-1 FIXED 1000 60 COST 450
    row RL.RESERVE rows:42 job-2 5m FIXED 1000 60 COST 400
    row RL.CANCEL rows:42 job-2 FIXED 1000 60
    say "With other rules, all or none: a request, a reserved budget and a permit."
    row RL.ALL '{t}:rpm' 'GCRA 20 60 60' '{t}:month' 'RESERVE job-7 30s QUOTA 5000000 month COST 1800' \
        '{t}:runs' 'LEASE job-7 4 2m'
}

show_use() {
    say "A policy: the code names the limit, the server stores its rule. In shadow mode every call is allowed,
and the last two integers are the verdict it would have. Enforced, the same state goes on:"
    row RL.USE user:1 search DEFAULT GCRA 6 10 60
    row RL.POLICY SET search SHADOW GCRA 2 1 60
    for _ in 1 2 3; do
        row RL.USE user:2 search
    done
    row RL.POLICY SET search ENFORCE 100
    row RL.USE user:2 search
    row RL.POLICY SET search EX 1m OFF
    row RL.USE user:2 search
    row RL.POLICY GET search
    show RL.POLICY STATS search

    say "RL.METRICS has the same counts for Prometheus:"
    echo "  > RL.METRICS"
    redis-cli -s "$socket" RL.METRICS | grep '^rl_policy_decisions_total' | sed 's/^/  /'
}

show_top() {
    say "RL.TOP names the keys that are denied most, each with its count and the largest error of the count:"
    for user in 1 2 1 1; do
        quietly RL.FIXED search:$user 1 1h
        quietly RL.FIXED search:$user 1 1h
    done
    show RL.TOP 2
}

show_errors() {
    quietly RL.GCRA user:42 6 10 60
    say "Errors say what is wrong, and change nothing:"
    show RL.GCRA user:42 6 10 1week
    show RL.FIXED user:42 3 1h

    say "Deleting the key of a user resets its limit:"
    show DEL user:42
    row RL.PEEK user:42 GCRA 6 10 60 COST 0
}

is_clock_explained=
for session in $selected; do
    if [ "$session" != table ] && [ -z "$is_clock_explained" ]; then
        printf '\n%s\n' "The clock of this server is frozen at 2026-01-01 00:00:00 UTC. RL.DEBUG CLOCK moves it."
        is_clock_explained=1
    fi
    quietly FLUSHALL
    quietly RL.POLICY RESETSTAT
    quietly RL.DEBUG CLOCK FREEZE "$start_us"
    "show_$session"
done

printf '\n%s\n' "Draw your own traffic and compare limits in a browser: make lab, then http://127.0.0.1:7780"
