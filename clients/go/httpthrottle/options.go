package httpthrottle

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/web"
)

// Option is an option of [Limit].
type Option interface{ applyPlan(*plan) }

// RuleOption is an option of [Rule] and [RuleFunc].
type RuleOption interface{ applyEntry(*entry) }

// SharedOption is an option of one rule, and of [Limit] for all rules without their own.
type SharedOption interface {
	Option
	RuleOption
}

type option func(*plan)

func (o option) applyPlan(p *plan) { o(p) }

// share is what a rule and a middleware both have.
type share struct {
	key func(*http.Request) string
	// keyErr and costErr are the errors of invalid functions.
	keyErr, costErr error
	cost            func(*http.Request) int64
	// units is a cost that is the same for all requests.
	units *int64
	// keyFailed and costFailed are done when a failure of the function has been logged.
	keyFailed, costFailed *sync.Once
}

// entry is a rule of a middleware.
type entry struct {
	share
	// known is nil if a function returns the rule.
	known *throttle.Rule
	find  func(*http.Request) *throttle.Rule
}

type sharedOption func(*share)

func (o sharedOption) applyPlan(p *plan)   { o(&p.share) }
func (o sharedOption) applyEntry(e *entry) { o(&e.share) }

// Rule adds a rule. Several rules are checked in one call, which takes from all or from none.
func Rule(rule *throttle.Rule, opts ...RuleOption) Option {
	return added(entry{known: rule}, opts)
}

// RuleFunc adds the rule that a function returns for a request, such as that of a plan. With nil
// the rule does not apply; a request to which none applies is not limited.
func RuleFunc(find func(*http.Request) *throttle.Rule, opts ...RuleOption) Option {
	return added(entry{find: find}, opts)
}

func added(one entry, opts []RuleOption) Option {
	return option(func(p *plan) {
		for _, o := range opts {
			if o == nil {
				p.invalid("options", "no nil")
				continue
			}
			o.applyEntry(&one)
		}
		p.entries = append(p.entries, one)
	})
}

// Key sets the function that returns the subject of a request, such as its API key. A request whose
// subject is empty or not UTF-8 gets a 400 response, unless there is an [Anonymous] rule; the same
// if the function panics by a [runtime.Error], such as for an index that is out of range, which is
// logged once. The default is the client's address; see [TrustedProxies].
func Key(key func(*http.Request) string) SharedOption {
	return keyed(key, missing("key", key == nil))
}

func keyed(key func(*http.Request) string, err error) SharedOption {
	failed := new(sync.Once)
	return sharedOption(func(s *share) { s.key, s.keyErr, s.keyFailed = key, err, failed })
}

// missing returns the error of an option without a function.
func missing(argument string, isNil bool) error {
	if !isNil {
		return nil
	}
	return &throttle.InvalidArgument{Argument: argument, Expected: "a function"}
}

// KeyOf sets a subject of one or more request headers, such as KeyOf("X-Tenant", "X-Api-Key"). The
// values are joined by a bar; in each, % becomes %25 and a bar %7C, so that other values are never
// the same subject. If a header is missing, empty or occurs more than once, there is no subject;
// see [Key]. Bytes beyond ASCII are read as Latin-1. No name, or an invalid one, is an error of
// [Limit].
func KeyOf(headers ...string) SharedOption {
	names := slices.Clone(headers)
	var err error
	isWrong := func(name string) bool { return !isToken(name) }
	if len(names) == 0 || slices.ContainsFunc(names, isWrong) {
		err = &throttle.InvalidArgument{Argument: "key", Expected: "one or more names of headers"}
	}
	return keyed(func(r *http.Request) string { return joinedFields(r, names) }, err)
}

// joinedFields returns the subject that the named headers of a request have; empty if one is
// missing.
func joinedFields(r *http.Request, names []string) string {
	parts := make([]string, len(names))
	for at, name := range names {
		value := web.Only(r.Header.Values(name))
		if strings.EqualFold(name, "Host") {
			// net/http keeps it apart.
			value = r.Host
		}
		parts[at] = web.Latin1(value)
	}
	return web.Joined(parts)
}

// Cost sets the units of a request, from 0 to 10^12. The default is 1. Leases and backoffs take no
// cost, and ignore it.
func Cost(units int64) SharedOption {
	return sharedOption(func(s *share) {
		s.units, s.cost, s.costErr = &units, func(*http.Request) int64 { return units }, nil
	})
}

// CostFunc sets the function that returns the units of a request. A request with others than those
// of [Cost] gets a 400 response, and the first is logged.
func CostFunc(cost func(*http.Request) int64) SharedOption {
	err, failed := missing("cost", cost == nil), new(sync.Once)
	return sharedOption(func(s *share) {
		s.units, s.cost, s.costErr, s.costFailed = nil, cost, err, failed
	})
}

// function returns the option of a function.
func function(argument string, isNil bool, set func(*plan)) Option {
	return option(func(p *plan) {
		p.err = first(p.err, missing(argument, isNil))
		set(p)
	})
}

// Skip sets the function that returns true for requests that are not limited.
func Skip(skips func(*http.Request) bool) Option {
	return function("skip", skips == nil, func(p *plan) { p.skips = skips })
}

// OnDenied sets the function that responds to denied requests. The fields of the decision and
// Cache-Control are set before it is called; the status and the body are left to it.
func OnDenied(
	respond func(w http.ResponseWriter, r *http.Request, d throttle.Decision),
) Option {
	return function("onDenied", respond == nil, func(p *plan) { p.onDenied = respond })
}

// OnFailure sets the function that responds to requests that could not be decided: the server
// rejected the command, the limiter is closed, the request's context has ended, or the function of
// a [RuleFunc] returned a wrong rule. A call without a final reply is no failure: the rule's
// OnError decides. By default the error is logged by [log/slog], and the response has the status
// 500.
func OnFailure(respond func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return function("onFailure", respond == nil, func(p *plan) { p.onFailure = respond })
}

// TrustedProxies sets the proxies whose X-Forwarded-For is believed: addresses, networks such as
// "10.0.0.0/8", and "unix" for the peers of a unix socket. The default is none; the first such
// field that arrives is then logged, because all clients behind a proxy share one limit. Without
// networks it is not logged. The peers of a unix socket that is not trusted share one limit, which
// is logged.
func TrustedProxies(networks ...string) Option {
	return option(func(p *plan) { p.networks, p.knowsProxies = networks, true })
}

// Headers sets the forms of the header fields. The default is [throttle.Draft11]. Without styles
// only Retry-After is sent.
func Headers(styles ...throttle.HeaderStyle) Option {
	return option(func(p *plan) { p.styles = append([]throttle.HeaderStyle{}, styles...) })
}

// Anonymous sets the rule of requests without a subject. It limits by the client's address, and
// replaces all other rules.
func Anonymous(rule *throttle.Rule) Option {
	return option(func(p *plan) { p.anonymous, p.hasAnonymous = rule, true })
}

// Tag sets the function that returns the hash tag of all keys of a request, which a cluster needs
// for several rules. With an empty tag the keys have that of the limiter. A request whose tag is
// not UTF-8 gets a 400 response.
func Tag(tag func(*http.Request) string) Option {
	return function("tag", tag == nil, func(p *plan) { p.tag = tag })
}

// DegradedHeader sets the name of a request header that the handler gets if OnError decided. Its
// value is then 1. A value from the client is removed.
func DegradedHeader(name string) Option {
	return option(func(p *plan) { p.degraded, p.hasDegraded = name, true })
}
