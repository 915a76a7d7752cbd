package goredis

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
)

func TestHTTP_counts_a_request_whose_body_its_client_cuts(t *testing.T) {
	for how, head := range map[string]string{
		"length": "Content-Length: 100\r\n\r\n0123456789",
		"chunks": "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n",
	} {
		for what, leave := range map[string]func(*net.TCPConn){
			"closes":      func(c *net.TCPConn) { _ = c.Close() },
			"half-closes": func(c *net.TCPConn) { _ = c.CloseWrite() },
			"resets":      func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		} {
			t.Run(how+" "+what, func(t *testing.T) {
				var judged atomic.Int64
				ok := throttle.CountIf(func(status int) bool {
					judged.Add(1)
					return status == http.StatusOK
				})
				rule := throttle.Must(throttle.Fixed("cut", 5, time.Hour, throttle.WithCount(ok)))
				came, ended := make(chan struct{}), make(chan struct{})
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					close(came)
					if _, err := io.ReadAll(r.Body); err != nil {
						w.WriteHeader(http.StatusBadRequest)
					}
					close(ended)
				}, httpthrottle.Rule(rule))
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\n"+head)
				<-came
				leave(conn.(*net.TCPConn))
				<-ended
				d, err := s.limiter.Peek(t.Context(), rule.Of("127.0.0.1").Cost(0))
				if err != nil || d.Remaining != 4 || judged.Load() != 0 {
					t.Error(d, err, judged.Load(), "times judged")
				}
			})
		}
	}
}
