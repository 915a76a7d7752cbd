#!/bin/sh
# A short session of every command, then seven algorithms under one and the same traffic.
#
#   scripts/demo.sh MODULE
#
# The server is a throwaway on a unix socket and its module's clock is frozen, so that every run
# prints the same. $SERVER replaces redis-server.
set -eu

module=$(readlink -f "$1")
server=${SERVER:-redis-server}
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
trap 'exit 130' INT TERM HUP

until redis-cli -s "$socket" PING >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null; then
        echo "The server did not start:" >&2
        cat "$log" >&2
        exit 1
    fi
    sleep 0.1
done

say() {
    printf '\n%s\n\n' "$1"
}

# As redis-cli prints it on a terminal.
show() {
    echo "  > $*"
    redis-cli -s "$socket" --no-raw "$@" | sed '/^$/d; s/^/  /'
}

# A reply of integers, on one line.
row() {
    reply=$(redis-cli -s "$socket" "$@" | paste -s -d ' ' -)
    printf '  > %-50s %s\n' "$*" "$reply"
}

# A call by two rules: each of them is one argument.
two_rows() {
    printf '  > %s %s "%s" %s "%s"\n' "$@"
    # shellcheck disable=SC2046 # one integer for each place
    printf '    %s %s %s %s %s   rule %s   [%s %s %s %s %s] [%s %s %s %s %s]\n' \
        $(redis-cli -s "$socket" "$@")
}

start_us=1767225600000000

# --- a session ------------------------------------------------------------------------------

say "The clock of this server stands at 2026-01-01 00:00:00 UTC and moves only when told to:"
show RL.DEBUG CLOCK FREEZE $start_us

say "RL.GCRA key burst rate period: six at once, then ten a minute. The reply, field by field:"
echo "  > RL.GCRA user:42 6 10 60"
redis-cli -s "$socket" --no-raw RL.GCRA user:42 6 10 60 | awk '
    BEGIN {
        split("allowed: 1 yes, 0 no|limit: the burst|remaining, right now|" \
            "retry_after_ms: 0, it was allowed|reset_after_ms: then all six are back", meaning, "|")
    }
    { printf "  %-24s %s\n", $0, meaning[NR] }'

say "Six more at the same instant; from here on, the five integers stand on one line:"
for _ in 1 2 3 4 5 6; do
    row RL.GCRA user:42 6 10 60
done

say "The last one was denied and told to come back in 6000 ms. That is exact:"
row RL.DEBUG CLOCK ADVANCE 5999ms
row RL.GCRA user:42 6 10 60
row RL.DEBUG CLOCK ADVANCE 1ms
row RL.GCRA user:42 6 10 60

say "RL.PEEK answers what a call would get and changes nothing; COST 0 asks for the status only:"
row RL.PEEK user:42 GCRA 6 10 60
row RL.PEEK user:42 GCRA 6 10 60 COST 0

say "RL.INSPECT shows the state itself:"
show RL.INSPECT user:42

say "RL.FIXED key limit window: three an hour, from the first call on; the dear one is denied whole:"
row RL.FIXED sms:42 3 1h
row RL.DEBUG CLOCK ADVANCE 20m
row RL.FIXED sms:42 3 1h
row RL.FIXED sms:42 3 1h COST 2

say "With ALIGNED the window ends at the full hour, whenever the first call comes:"
row RL.FIXED export:42 3 1h ALIGNED

say "RL.SLIDING key limit window: what the last minute used fades out over this one:"
row RL.DEBUG CLOCK ADVANCE 54s
row RL.SLIDING search:42 100 60 COST 40
row RL.DEBUG CLOCK ADVANCE 90s
row RL.SLIDING search:42 100 60 COST 80
row RL.SLIDING search:42 100 60
row RL.DEBUG CLOCK ADVANCE 1500ms
row RL.SLIDING search:42 100 60

say "RL.SLIDINGLOG key limit window: exact, each call is given back one window after it was made:"
row RL.SLIDINGLOG mail:42 2 10
row RL.DEBUG CLOCK ADVANCE 4s
row RL.SLIDINGLOG mail:42 2 10
row RL.SLIDINGLOG mail:42 2 10

say "RL.TOKENBUCKET key capacity rate period: 30 tokens, 30 new ones a minute, 20 a call:"
row RL.TOKENBUCKET upload:42 30 30 60 COST 20
row RL.TOKENBUCKET upload:42 30 30 60 COST 20
row RL.DEBUG CLOCK ADVANCE 10s
row RL.TOKENBUCKET upload:42 30 30 60 COST 20

say "RL.LEAKYBUCKET key capacity rate period: a queue; field 4 of an allowed call is its turn:"
for _ in 1 2 3 4 5; do
    row RL.LEAKYBUCKET webhook:42 4 2 1
done

say "A cost above the limit can never pass, which field 4 says with -1:"
row RL.TOKENBUCKET upload:42 30 30 60 COST 31

say "With PARTIAL a call takes what is there, up to its cost; field 1 says how much that is:"
for _ in 1 2 3; do
    row RL.TOKENBUCKET batch:42 10 10 60 COST 8 PARTIAL
done

say "RL.BACKOFF key attempts base max forget: three attempts are free, then each waits twice as long
as the one before. RL.CHARGE counts one that came too early, which restarts the delay:"
for _ in 1 2 3 4; do
    row RL.BACKOFF login:42 3 1s 8s 1h
done
row RL.DEBUG CLOCK ADVANCE 1s
row RL.BACKOFF login:42 3 1s 8s 1h
row RL.PEEK login:42 BACKOFF 3 1s 8s 1h
row RL.CHARGE login:42 BACKOFF 3 1s 8s 1h

say "Estimate, then settle: 800 are taken, and it was 1100 in the end. RL.CHARGE takes the rest also
where it is not there; field 4 is the time until the debt is paid, and calls wait for that:"
row RL.TOKENBUCKET model:42 900 900 60 COST 800
row RL.CHARGE model:42 TOKENBUCKET 900 900 60 COST 300
row RL.TOKENBUCKET model:42 900 900 60

say "It was 850 after all: RL.REFUND gives back what was too much, never past the full allowance:"
row RL.REFUND model:42 TOKENBUCKET 900 900 60 COST 250

say "RL.ALL takes from all of its rules or from none. Behind the five integers: the rule that they
come from, and a row for each. The second call is denied by rule 2, and rule 1 loses nothing:"
for _ in 1 2; do
    two_rows RL.ALL '{7}:user' 'GCRA 6 10 60' '{7}:tenant' 'FIXED 8 60 COST 5'
done

say "RL.PEEKALL looks at several, and takes nothing:"
two_rows RL.PEEKALL '{7}:user' 'GCRA 6 10 60' '{7}:tenant' 'FIXED 8 60 COST 3'

say "RL.QUOTA key limit unit: a thousand a day, and the day is that of Berlin, where this one has 23
hours. Half an hour of them is over:"
row RL.DEBUG CLOCK FREEZE 1774740600000000
row RL.QUOTA export:7 1000 day ZONE Europe/Berlin

say "RL.LEASE key id limit ttl: three hold at once, and the permit of one that dies is free again:"
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

say "RL.RESERVE holds what a job may cost, RL.COMMIT settles what it took, once, whoever asks again:"
row RL.RESERVE rows:42 job-1 5m FIXED 1000 60 COST 700
row RL.RESERVE rows:42 job-2 5m FIXED 1000 60 COST 400
row RL.COMMIT rows:42 job-1 FIXED 1000 60 COST 450
row RL.COMMIT rows:42 job-1 FIXED 1000 60 COST 450
row RL.RESERVE rows:42 job-2 5m FIXED 1000 60 COST 400
row RL.CANCEL rows:42 job-2 FIXED 1000 60

say "A policy: the code names the limit, the server says what it is. In the shadow it lets everybody in,
and the last two integers tell whom it would not; made real, it goes on from there:"
row RL.USE user:1 search DEFAULT GCRA 6 10 60
row RL.POLICY SET search SHADOW GCRA 2 1 60
for _ in 1 2 3; do
    row RL.USE user:2 search
done
row RL.POLICY SET search GCRA 2 1 60
row RL.USE user:2 search
row RL.POLICY SET search EX 1m OFF GCRA 2 1 60
row RL.USE user:2 search
row RL.POLICY GET search
show RL.POLICY STATS search

say "RL.METRICS has all of that for Prometheus:"
echo "  > RL.METRICS"
redis-cli -s "$socket" RL.METRICS | grep '^rl_policy_decisions_total' | sed 's/^/  /'

say "Mistakes are told apart, and change nothing:"
show RL.GCRA user:42 6 10 1week
show RL.FIXED user:42 3 1h

say "To forget a subject, delete its key:"
show DEL user:42
row RL.PEEK user:42 GCRA 6 10 60 COST 0

# --- one traffic, seven algorithms ------------------------------------------------------------

say "Now one and the same traffic for seven of them: six have 5 per 10 seconds, and BACKOFF has 5 free
attempts, delays of 1 s, 2 s, 4 s and so on, and forgets all after 10 s without one. There is one
call at 0 s, six at 9 s, six at 10 s, then one a second. '#' is allowed, '.' is denied, and a digit
of the leaky bucket is allowed after so many seconds. The last column is the most that passed in any
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
    # The most that was allowed in any stretch of ten seconds.
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

  FIXED        a new window at 10 s forgets the one before: 9 within two seconds
  SLIDING      the window before fades out, so the 5 come back one by one
  SLIDINGLOG   never more than 5 in any 10 s, and so the longest to wait
  TOKENBUCKET  a full bucket at 9 s, then one token every two seconds
  LEAKYBUCKET  decides as the token bucket does, but spreads what it allows over time
  GCRA         decides as the token bucket does, with one timestamp of state
  BACKOFF      the free attempts, then one after 1 s, after 2 s and after 4 s"
