package httpthrottle_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
	"redis-throttle.invalid/go/throttletest"
)

func TestNames_of_unix_sockets_are_no_addresses(t *testing.T) {
	t.Chdir(t.TempDir())
	listener, err := net.Listen("unix", "s")
	if err != nil {
		t.Fatal(err)
	}
	limiter := limiterOn(t, throttletest.NewServer())
	handler := limited(t, limiter, served, httpthrottle.TrustedProxies("10.0.0.0/8"),
		httpthrottle.Rule(throttle.Must(throttle.Fixed("api", 1, time.Hour))))
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	var statuses []int
	for _, name := range []string{"203.0.113.7:1", "10.0.0.1:1", "c"} {
		dialer := net.Dialer{LocalAddr: &net.UnixAddr{Net: "unix", Name: name}}
		client := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", "s")
			},
		}}
		r, _ := http.NewRequest(http.MethodGet, "http://unix/", nil)
		r.Header.Set("X-Forwarded-For", "198.51.100."+name[:1])
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		statuses = append(statuses, response.StatusCode)
	}
	if !slices.Equal(statuses, []int{200, 429, 429}) {
		t.Errorf("%v of three names", statuses)
	}
}

// statusesOnUnix returns the statuses of requests with these X-Forwarded-For over a unix socket.
func statusesOnUnix(t *testing.T, handler http.Handler, forwarded ...string) []int {
	t.Helper()
	// t.TempDir is too long a path on some systems.
	folder, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", path)
		},
	}}
	var statuses []int
	for _, one := range forwarded {
		r, _ := http.NewRequest(http.MethodGet, "http://unix/", nil)
		r.Header.Set("X-Forwarded-For", one)
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		statuses = append(statuses, response.StatusCode)
	}
	return statuses
}

func TestPeers_without_an_address_share_a_limit_which_is_logged_once(t *testing.T) {
	log := logging(t)
	api := httpthrottle.Rule(throttle.Must(throttle.Fixed("api", 1, time.Hour)))
	unix := []string{"unix"}
	for what, one := range map[string]struct {
		trusted   []string
		forwarded []string
		statuses  []int
		lines     int
	}{
		"not trusted":       {nil, []string{"192.0.2.1", "192.0.2.2"}, []int{200, 429}, 1},
		"trusted":           {unix, []string{"192.0.2.1", "192.0.2.2"}, []int{200, 200}, 0},
		"trusted, wrong":    {unix, []string{"x"}, []int{400}, 0},
		"trusted, no field": {unix, []string{"", " "}, []int{200, 429}, 1},
	} {
		log.Reset()
		limiter := limiterOn(t, throttletest.NewServer())
		handler := limited(t, limiter, served, api, httpthrottle.TrustedProxies(one.trusted...))
		statuses := statusesOnUnix(t, handler, one.forwarded...)
		lines := strings.Count(log.String(), "a peer has no address")
		if !slices.Equal(statuses, one.statuses) || lines != one.lines {
			t.Errorf("%s: %v, %s", what, statuses, log.String())
		}
	}
}
