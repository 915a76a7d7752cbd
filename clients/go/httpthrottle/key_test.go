package httpthrottle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/httpthrottle"
)

func TestKeyOf_joins_headers_as_the_cases_do(t *testing.T) {
	text, err := os.ReadFile("../../cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Parts []struct {
			Name   string
			Input  []*string
			Expect any
		} `json:"key_parts"`
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	var hash string
	limiter := without(t, throttle.WithOnDecision(func(e throttle.Event) { hash = e.KeyHash }))
	api := gcra(t, "api")
	for _, one := range cases.Parts {
		var names []string
		r := get()
		for at, value := range one.Input {
			names = append(names, fmt.Sprint("X-Part-", at))
			if value != nil {
				var latin1 []byte
				for _, char := range *value {
					latin1 = append(latin1, byte(char))
				}
				r.Header.Set(names[at], string(latin1))
			}
		}
		limit, err := httpthrottle.Limit(limiter, httpthrottle.Rule(api),
			httpthrottle.KeyOf(names...))
		if len(names) == 0 {
			var wrong *throttle.InvalidArgument
			if !errors.As(err, &wrong) || wrong.Argument != "key" {
				t.Errorf("%s: %v", one.Name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		w := serve(limit(http.HandlerFunc(served)), r)
		got := hash
		if subject, isSubject := one.Expect.(string); isSubject {
			_, _ = limiter.Check(context.Background(), api.Of(subject))
		}
		expectSubject(t, one.Name, one.Expect, w.Code, got == hash)
	}
	if len(cases.Parts) < 12 {
		t.Errorf("%d cases", len(cases.Parts))
	}
}

func TestKeyOf_of_one_rule_reads_the_host_and_only_one_line(t *testing.T) {
	var seen string
	limiter := without(t, throttle.WithOnDecision(func(e throttle.Event) { seen = e.KeyHash }))
	api := gcra(t, "api")
	handler := limited(t, limiter, served,
		httpthrottle.Rule(api, httpthrottle.KeyOf("host", "x-api-key")))
	r := get()
	r.Host = "acme.example"
	r.Header["X-Api-Key"] = []string{"k1", "k2"}
	if w := serve(handler, r); w.Code != http.StatusBadRequest {
		t.Error("a header with two lines:", w.Code)
	}
	r.Header["X-Api-Key"] = []string{"k1"}
	serve(handler, r)
	got := seen
	_, _ = limiter.Check(context.Background(), api.Of("acme.example|k1"))
	if got != seen {
		t.Error("another subject than acme.example|k1")
	}
}

// expectSubject checks the status of a request of a case, and that its subject is the expected one
// if the case has a subject.
func expectSubject(t *testing.T, name string, expected any, status int, isSame bool) {
	t.Helper()
	if _, isSubject := expected.(string); !isSubject {
		if status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, status)
		}
		return
	}
	if status != http.StatusOK || !isSame {
		t.Errorf("%s: %d, another subject than %s", name, status, expected)
	}
}
