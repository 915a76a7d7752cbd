package throttle

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HeaderStyle is a form of the headers. Draft11 is revision 11 of
// draft-ietf-httpapi-ratelimit-headers, whose names may still change.
type HeaderStyle string

// The forms of the headers.
const (
	// Draft11 writes RateLimit-Policy and RateLimit. It is the default.
	Draft11 HeaderStyle = "draft-11"
	// Draft6 writes RateLimit-Limit, -Remaining and -Reset, in seconds from now.
	Draft6 HeaderStyle = "draft-6"
	// XRateLimit writes the names of Draft6 with X-; the reset is Unix time in seconds.
	XRateLimit HeaderStyle = "x-ratelimit"
)

// HeaderOptions are the options of [Decision.Headers].
type HeaderOptions struct {
	// Styles are the forms to write. Nil is Draft11 alone, and an empty list only Retry-After.
	Styles []HeaderStyle
	// Now is the time for X-RateLimit-Reset. The zero time is that of this process.
	Now time.Time
}

// Headers returns the HTTP fields that report the decision. If OnError decided, only a denial has
// one: Retry-After.
func (d Decision) Headers(o HeaderOptions) map[string]string {
	styles, now := o.Styles, o.Now
	if styles == nil {
		styles = []HeaderStyle{Draft11}
	}
	if now.IsZero() {
		now = time.Now()
	}
	retryAfter := noSeconds
	if !d.Allowed {
		retryAfter = d.retrySeconds()
	}
	fields := map[string]string{}
	if d.Source != SourceError {
		if slices.Contains(styles, Draft11) {
			d.structured(fields, retryAfter)
		}
		if slices.Contains(styles, Draft6) {
			d.three(fields, "", d.secondsLeft(retryAfter))
		}
		if slices.Contains(styles, XRateLimit) {
			wait := d.ResetAfter
			if retryAfter != noSeconds {
				wait = d.RetryAfter
			}
			d.three(fields, "X-", ceilSeconds(time.Duration(now.UnixNano())+wait))
		}
	}
	if retryAfter != noSeconds {
		fields["Retry-After"] = strconv.FormatInt(retryAfter, 10)
	}
	return fields
}

// noSeconds stands for no retry time.
const noSeconds int64 = math.MaxInt64

func ceilSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

// retrySeconds returns Retry-After: at least 1, or noSeconds if a retry never helps.
func (d Decision) retrySeconds() int64 {
	if d.Never {
		return noSeconds
	}
	return max(1, ceilSeconds(d.RetryAfter))
}

func (d Decision) structured(fields map[string]string, retryAfter int64) {
	rows := d.Rows
	if len(rows) == 0 {
		rows = []Decision{d}
	}
	var policies, states []string
	for _, row := range rows {
		if row.Source == SourceError {
			continue
		}
		policy := fmt.Sprintf("%q;q=%d", row.Rule, row.Limit)
		if row.rule != nil && row.rule.window >= time.Second {
			policy += fmt.Sprintf(";w=%d", ceilSeconds(row.rule.window))
		}
		policies = append(policies, policy)
		left := row.secondsLeft(retryAfter)
		states = append(states, fmt.Sprintf("%q;r=%d;t=%d", row.Rule, row.Remaining, left))
	}
	if len(states) > 0 {
		fields["RateLimit-Policy"] = strings.Join(policies, ", ")
		fields["RateLimit"] = strings.Join(states, ", ")
	}
}

// secondsLeft returns the seconds until the retry if the rule denies, otherwise until the reset; at
// most retryAfter.
func (d Decision) secondsLeft(retryAfter int64) int64 {
	own := noSeconds
	if !d.Allowed {
		own = d.retrySeconds()
	}
	if own == noSeconds {
		own = ceilSeconds(d.ResetAfter)
	}
	return min(own, retryAfter)
}

func (d Decision) three(fields map[string]string, prefix string, reset int64) {
	fields[prefix+"RateLimit-Limit"] = intWord(d.Limit)
	fields[prefix+"RateLimit-Remaining"] = intWord(d.Remaining)
	fields[prefix+"RateLimit-Reset"] = intWord(reset)
}

// Problem is a body of application/problem+json (RFC 9457). It has no key and no subject.
type Problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Problem returns the body of a denial: status 429; 403 if the subject is banned, and 413 if the
// call is too large; 503 if OnError decided.
func (d Decision) Problem() Problem {
	if d.Source == SourceError {
		return problem(503, "Service Unavailable", "The rate limiter is not available.")
	}
	if d.Banned {
		return problem(403, "Forbidden", "This caller is blocked.")
	}
	if d.Never {
		return problem(413, "Content Too Large",
			"This request costs more than its limit allows at once.")
	}
	seconds := d.retrySeconds()
	plural := "s"
	if seconds == 1 {
		plural = ""
	}
	detail := fmt.Sprintf("Come back in %d second%s.", seconds, plural)
	p := problem(429, "Too Many Requests", detail)
	p.Type = quotaExceeded
	for _, row := range d.Rows {
		if !row.Allowed {
			p.ViolatedPolicies = append(p.ViolatedPolicies, row.Rule)
		}
	}
	if p.ViolatedPolicies == nil {
		p.ViolatedPolicies = []string{d.Rule}
	}
	return p
}

// NoSubject returns the body of the response to a request without a subject, whose status is 400.
func NoSubject() Problem {
	return problem(400, "Bad Request", "The request does not say who it is from.")
}

// InvalidCost returns the body of the response to a request whose cost no call can have, and whose
// status is 400.
func InvalidCost() Problem {
	return problem(400, "Bad Request", "The cost of the request is out of range.")
}

func problem(status int, title, detail string) Problem {
	return Problem{Type: "about:blank", Title: title, Status: status, Detail: detail}
}
