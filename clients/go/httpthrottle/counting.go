package httpthrottle

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	throttle "redis-throttle.invalid/go"
)

// refundable returns the positions of the items whose rules do not count all responses and that
// took units.
func (t *taken) refundable() []int {
	var all []int
	for at, item := range t.items {
		row := t.row(at)
		isTaken := row.Source != throttle.SourceError && row.Granted > 0 && row.WouldAllow
		if isTaken && !item.Rule().Count().IsAll() {
			all = append(all, at)
		}
	}
	return all
}

// row returns the decision on an item.
func (t *taken) row(at int) throttle.Decision {
	if at < len(t.decision.Rows) {
		return t.decision.Rows[at]
	}
	return t.decision
}

// giveBack gives back what the items took whose rules do not count a status. The limiter counts a
// rejected refund. Without a final reply, the units stay taken.
func (p *plan) giveBack(t *taken, at []int, status int) {
	for _, index := range at {
		if item := t.items[index]; !p.counts.Of(item.Rule(), status) {
			_ = p.limiter.GiveBack(item, t.row(index), t.opts...)
		}
	}
}

// recorder calls a function with the status of a response, once, when its head is written. It does
// not if the client was gone: the response counts then, because the handler ran for it.
type recorder struct {
	http.ResponseWriter
	ctx         context.Context
	body        *watchedBody
	onHead      func(status int)
	isDecided   bool
	hasReturned bool
}

// watchedBody is the body of a request. A part that does not arrive shows that the client is gone,
// or broke its promise, which the request's context does not until then.
type watchedBody struct {
	io.ReadCloser
	isCut atomic.Bool
}

// Read reads a part of the body.
func (b *watchedBody) Read(part []byte) (int, error) {
	n, err := b.ReadCloser.Read(part)
	if err != nil && !isExpectedEnd(err) {
		b.isCut.Store(true)
	}
	return n, err
}

// isExpectedEnd returns true if a read ended at the body's end, or at a bound of the application.
func isExpectedEnd(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.Is(err, io.EOF) || errors.Is(err, http.ErrBodyReadAfterClose) ||
		errors.As(err, &tooLarge)
}

func (w *recorder) head(status int) {
	if w.isDecided {
		return
	}
	w.isDecided = true
	isGone := errors.Is(w.ctx.Err(), context.Canceled) || w.body != nil && w.body.isCut.Load()
	if !isGone {
		w.onHead(status)
	}
}

// end decides a response whose handler wrote no head: after a panic, the status is 500.
func (w *recorder) end() {
	status := http.StatusOK
	// A framework may write to the writer below, and knows the status.
	if below, ok := w.ResponseWriter.(interface{ Status() int }); ok && below.Status() > 0 {
		status = below.Status()
	}
	if !w.hasReturned {
		status = http.StatusInternalServerError
	}
	w.head(status)
}

// WriteHeader writes the head, unless the status is informational.
func (w *recorder) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.head(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (w *recorder) Write(part []byte) (int, error) {
	w.head(http.StatusOK)
	return w.ResponseWriter.Write(part)
}

// ReadFrom writes a part of the body, which the server may send from a file by itself.
func (w *recorder) ReadFrom(part io.Reader) (int64, error) {
	w.head(http.StatusOK)
	return io.Copy(w.ResponseWriter, part)
}

// Flush sends what was written.
func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError sends what was written.
func (w *recorder) FlushError() error {
	w.head(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack returns the connection.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.head(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// Unwrap returns the writer below, for [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
