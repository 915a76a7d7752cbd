package httpthrottle

import (
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/web"
)

const rulesMax = 16

// plan has the options of a middleware.
type plan struct {
	share
	limiter      *throttle.Limiter
	entries      []entry
	skips        func(*http.Request) bool
	onDenied     func(http.ResponseWriter, *http.Request, throttle.Decision)
	onFailure    func(http.ResponseWriter, *http.Request, error)
	networks     []string
	knowsProxies bool
	clients      *web.Clients
	counts       web.Counts
	styles       []throttle.HeaderStyle
	anonymous    *throttle.Rule
	hasAnonymous bool
	tag          func(*http.Request) string
	degraded     string
	hasDegraded  bool
	// err is the first error of an option.
	err error
}

func (p *plan) invalid(argument, expected string) {
	if p.err == nil {
		p.err = &throttle.InvalidArgument{Argument: argument, Expected: expected}
	}
}

// check validates the options, and the rules that are known.
func (p *plan) check() error {
	if p.limiter == nil {
		p.invalid("limiter", "a limiter made by New")
	}
	if len(p.entries) < 1 || len(p.entries) > rulesMax {
		p.invalid("rules", "1 to 16 rules")
	}
	seen := map[string]bool{}
	for _, one := range p.entries {
		p.checkShare(one.share)
		if one.find != nil {
			continue
		}
		p.checkRule(one.known)
		if one.known != nil && seen[one.known.Name()] {
			p.invalid("rules", "no repeated name")
		}
		if one.known != nil {
			seen[one.known.Name()] = true
		}
	}
	p.checkShare(p.share)
	if p.hasAnonymous {
		p.checkRule(p.anonymous)
	}
	known := []throttle.HeaderStyle{throttle.Draft11, throttle.Draft6, throttle.XRateLimit}
	for _, style := range p.styles {
		if !slices.Contains(known, style) {
			p.invalid("headers", "Draft11, Draft6 or XRateLimit")
		}
	}
	if p.hasDegraded && !isToken(p.degraded) {
		p.invalid("degradedHeader", "the name of a header")
	}
	proxies, err := throttle.TrustProxies(p.networks...)
	p.clients = web.ClientsBehind(proxies)
	p.err = first(p.err, err)
	return p.err
}

func (p *plan) checkRule(rule *throttle.Rule) {
	p.err = first(p.err, p.limiter.CanDecide(rule))
}

func (p *plan) checkShare(s share) {
	p.err = first(first(p.err, s.keyErr), s.costErr)
	if s.units != nil && (*s.units < 0 || *s.units > 1_000_000_000_000) {
		p.invalid("cost", "0 to 10^12")
	}
}

func first(one, other error) error {
	if one != nil {
		return one
	}
	return other
}

// isToken returns true if a text can be the name of a header.
func isToken(text string) bool {
	const others = "!#$%&'*+-.^_`|~"
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !isLetter && !strings.ContainsRune(others, c)
	})
}

// subjects finds the subjects of a request, that of the middleware's own key once.
type subjects struct {
	plan    *plan
	request *http.Request
	shared  *string
}

var (
	noSubject   = throttle.NoSubject()
	invalidCost = throttle.InvalidCost()
)

// items returns what a request takes; none if no rule applies. It returns a problem for a
// request without a subject, or with a cost that no call can have.
func (p *plan) items(r *http.Request) ([]throttle.Item, *throttle.Problem) {
	found := &subjects{plan: p, request: r}
	items := make([]throttle.Item, 0, len(p.entries))
	for _, one := range p.entries {
		rule := one.known
		if one.find != nil {
			if rule = one.find(r); rule == nil {
				continue
			}
		}
		subject := found.of(one)
		if subject == "" {
			return p.anonymousItem(r)
		}
		item, ok := p.item(r, rule, subject, one.share)
		if !ok {
			return nil, &invalidCost
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *plan) anonymousItem(r *http.Request) ([]throttle.Item, *throttle.Problem) {
	if p.anonymous == nil {
		return nil, &noSubject
	}
	subject := p.address(r)
	if subject == "" {
		return nil, &noSubject
	}
	item, ok := p.item(r, p.anonymous, subject, share{})
	if !ok {
		return nil, &invalidCost
	}
	return []throttle.Item{item}, nil
}

// item returns a rule's item with the cost of the request; false if no call can have it.
func (p *plan) item(
	r *http.Request, rule *throttle.Rule, subject string, own share,
) (throttle.Item, bool) {
	item := rule.Of(subject)
	if own.cost == nil {
		own = p.share
	}
	if own.cost == nil || !rule.TakesCost() {
		return item, true
	}
	units := own.cost(r)
	return item.Cost(units), web.IsCost(own.costFailed, units)
}

// of returns the subject under a rule; empty if there is none.
func (s *subjects) of(one entry) string {
	if one.key != nil {
		return web.Subject(one.keyFailed, func() string { return one.key(s.request) })
	}
	if s.shared == nil {
		var subject string
		if s.plan.key != nil {
			find := func() string { return s.plan.key(s.request) }
			subject = web.Subject(s.plan.keyFailed, find)
		} else {
			subject = s.plan.address(s.request)
		}
		s.shared = &subject
	}
	return *s.shared
}

const forwardedFor = "X-Forwarded-For"

var forwardedOnce sync.Once

// address returns the client's address, or the name of a peer without one; empty if a trusted proxy
// names none.
func (p *plan) address(r *http.Request) string {
	forwarded := r.Header.Values(forwardedFor)
	if len(forwarded) > 0 && !p.knowsProxies {
		forwardedOnce.Do(func() {
			slog.Warn("redis-throttle: X-Forwarded-For arrived, but no proxy is trusted: all " +
				"clients behind a proxy share one limit. Set httpthrottle.TrustedProxies to the " +
				"networks of the proxies, or to none.")
		})
	}
	peer := r.RemoteAddr
	// The peer of a unix socket has no address, but a name that it chose, which may look like one.
	_, isUnix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	if isUnix || strings.HasPrefix(peer, "@") || strings.HasPrefix(peer, "/") {
		peer = ""
	}
	return p.clients.Subject(peer, forwarded)
}
