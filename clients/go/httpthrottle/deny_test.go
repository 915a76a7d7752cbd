package httpthrottle_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
	"redis-throttle.invalid/go/internal/live"
	"redis-throttle.invalid/go/throttletest"
)

// limiterOn returns a limiter of a server in this process.
func limiterOn(t *testing.T, server throttle.Dialer) *throttle.Limiter {
	t.Helper()
	limiter, err := throttle.New(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close(context.Background()) })
	return limiter
}

func TestDeny_responds_to_a_denied_admission_as_the_middleware_does(t *testing.T) {
	full := limiterOn(t, throttletest.NewServer())
	hourly := throttle.Must(throttle.Fixed("api", 1, time.Hour,
		throttle.WithOnError(throttle.Deny)))
	runs := throttle.Must(throttle.Lease("runs", 1, time.Hour))
	if _, err := full.Check(t.Context(), hourly.Of("192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	for status, one := range map[int]struct {
		limiter *throttle.Limiter
		rule    *throttle.Rule
		units   int64
	}{
		429: {full, hourly, 1}, 413: {full, hourly, 2}, 503: {without(t), hourly, 1},
		403: {limiterOn(t, live.Banning()), runs, 1},
	} {
		var denied *throttle.Denied
		handler := func(w http.ResponseWriter, r *http.Request) {
			item := one.rule.Of("192.0.2.1")
			_, err := one.limiter.Lease(r.Context(), item)
			if one.rule == hourly {
				_, err = one.limiter.Admit(r.Context(), []throttle.Item{item.Cost(one.units)})
			}
			if !errors.As(err, &denied) {
				t.Fatal(err)
			}
			httpthrottle.Deny(w, denied.Decision)
		}
		never := func(http.ResponseWriter, *http.Request) { t.Error("was served") }
		got := serve(http.HandlerFunc(handler), get())
		want := serve(limited(t, one.limiter, never, httpthrottle.Rule(one.rule),
			httpthrottle.Cost(one.units)), get())
		if got.Code != status || denied.Status() != status ||
			!reflect.DeepEqual(got.Result().Header, want.Result().Header) ||
			got.Body.String() != want.Body.String() {
			t.Error(status, got.Code, got.Header(), want.Code, want.Header())
		}
		for name, value := range denied.Headers() {
			if got.Header().Get(name) != value {
				t.Error(status, name, value)
			}
		}
	}
}
