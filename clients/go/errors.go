package throttle

import (
	"errors"
	"regexp"
	"strings"
)

// ErrClosed is the error of the calls of a limiter after its Close.
var ErrClosed = errors.New("the limiter is closed")

// InvalidArgument is the error of a wrong argument. No call was sent.
type InvalidArgument struct {
	// Argument is the name of the argument, such as "burst".
	Argument string
	// Expected describes the valid values.
	Expected string
}

// Error returns the argument and its valid values.
func (e *InvalidArgument) Error() string {
	return "invalid " + e.Argument + ": expected " + e.Expected
}

func invalid(argument, expected string) error {
	return &InvalidArgument{Argument: argument, Expected: expected}
}

// CommandRejected is the error of a command that the server refused for good, or of a reply that is
// not a decision. It is returned under every [OnError], so that no limit is off unnoticed.
type CommandRejected struct {
	// Kind is the first word of the server's error, such as "WRONGTYPE"; "PROTOCOL" for a reply
	// that is not a decision.
	Kind string
	// Message is the server's error.
	Message string
	err     error
}

// Error returns the server's error.
func (e *CommandRejected) Error() string { return e.Message }

// Unwrap returns the driver's error, or nil.
func (e *CommandRejected) Unwrap() error { return e.err }

// Reason says why there is no final reply.
type Reason string

// The reasons for a missing final reply. After ReasonServer and ReasonCircuit the call has not run;
// after the others it may have.
const (
	// ReasonTimeout means that the server, or the call's connection, is silent.
	ReasonTimeout Reason = "timeout"
	// ReasonConnection means that no connection could be opened in time, or that it was lost.
	ReasonConnection Reason = "connection"
	// ReasonServer means that the server cannot decide now, such as while it loads its data.
	ReasonServer Reason = "server"
	// ReasonOverloaded means that there are too many calls, or that a reply was late, although the
	// server replies to others.
	ReasonOverloaded Reason = "overloaded"
	// ReasonCircuit means that the circuit breaker is open.
	ReasonCircuit Reason = "circuit"
)

// Unavailable is the error of a call without a final reply, which is a decision or a rejection.
type Unavailable struct {
	// Reason says why there is no final reply.
	Reason  Reason
	message string
	err     error
	// isSent says whether the command left this process.
	isSent bool
	// isOwn says whether the caller's own deadline ended the call.
	isOwn bool
}

// Error returns the reason and its details.
func (e *Unavailable) Error() string { return e.message }

// Unwrap returns the driver's error, or nil.
func (e *Unavailable) Unwrap() error { return e.err }

// Denied is the error of a lease, a reservation or an admission that was denied.
type Denied struct {
	// Decision is the denial.
	Decision Decision
}

// Error returns the denial.
func (e *Denied) Error() string { return "denied: " + e.Decision.String() }

// Status returns the HTTP status of the denial: that of [Decision.Problem].
func (e *Denied) Status() int { return e.Decision.Problem().Status }

// Headers returns the HTTP fields of the denial: those of [Decision.Headers] in the default style,
// and Cache-Control, since no cache may serve it to another request.
func (e *Denied) Headers() map[string]string {
	fields := e.Decision.Headers(HeaderOptions{})
	fields["Cache-Control"] = "no-store"
	return fields
}

// mayHaveRun returns true if the call that ended with this error may have run on the server.
func mayHaveRun(err error) bool {
	var unavailable *Unavailable
	if !errors.As(err, &unavailable) || !unavailable.isSent {
		return false
	}
	return unavailable.Reason != ReasonServer
}

// isUnreachable returns true if a node did not reply.
func isUnreachable(err error) bool {
	var unavailable *Unavailable
	return errors.As(err, &unavailable) &&
		(unavailable.Reason == ReasonTimeout || unavailable.Reason == ReasonConnection)
}

// passing has the first words of the errors of a server that cannot decide for some time.
var passing = map[string]bool{
	"LOADING": true, "READONLY": true, "OOM": true, "MISCONF": true, "NOREPLICAS": true,
	"CLUSTERDOWN": true, "MASTERDOWN": true, "BUSY": true, "TRYAGAIN": true,
	"MOVED": true, "ASK": true,
}

// rightsInLibrary matches the errors of a user who lacks a right inside of the library. Servers
// begin them with ERR instead of NOPERM.
var rightsInLibrary = regexp.MustCompile(
	`^ERR (ACL failure in script|The user executing the script can't)`)

// classified returns a server's error reply as a CommandRejected or an Unavailable.
func classified(reply error) error {
	text := strings.TrimPrefix(reply.Error(), "-")
	kind, _, _ := strings.Cut(text, " ")
	if passing[kind] || strings.HasPrefix(text, "ERR max number of clients") {
		return &Unavailable{Reason: ReasonServer, message: text, err: reply, isSent: true}
	}
	if rightsInLibrary.MatchString(text) {
		kind = "NOPERM"
	}
	return &CommandRejected{Kind: kind, Message: text, err: reply}
}

// beginsWith returns true if a server's error begins with one of the words.
func beginsWith(err error, words ...string) bool {
	if err == nil {
		return false
	}
	kind, _, _ := strings.Cut(err.Error(), " ")
	for _, word := range words {
		if kind == word {
			return true
		}
	}
	return false
}
