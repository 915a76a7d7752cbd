package goredis

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

func TestAllows_exactly_the_limit_to_many_goroutines(t *testing.T) {
	server := start(t, live.Module(t)...)
	limiter := limiterOf(t, server.rdb, patient)
	item := gcra(t, 50).Of("user:42")
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if check(t, limiter, item).Allowed {
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	if allowed.Load() != 50 {
		t.Errorf("allowed %d calls", allowed.Load())
	}
	if stats := server.rdb.PoolStats(); stats.Misses > 1 {
		t.Errorf("the program's client was used: %+v", stats)
	}
}

func TestUses_each_back_end(t *testing.T) {
	plain := start(t)
	ctx := context.Background()
	for _, backend := range []throttle.Backend{
		throttle.BackendAuto, throttle.BackendFunctions, throttle.BackendScript,
	} {
		limiter := limiterOf(t, plain.rdb, patient, throttle.WithBackend(backend))
		item := gcra(t, 1).Of(string(backend))
		first, second := check(t, limiter, item), check(t, limiter, item)
		if !first.Allowed || second.Allowed || second.Source != throttle.SourceServer {
			t.Errorf("%s: %v, %v", backend, first, second)
		}
		used, err := limiter.Ready(ctx)
		wanted := backend
		if backend == throttle.BackendAuto {
			wanted = throttle.BackendFunctions
		}
		if err != nil || used != wanted {
			t.Errorf("%s: %s, %v", backend, used, err)
		}
	}
	limiter := limiterOf(t, plain.rdb, patient, throttle.WithBackend(throttle.BackendModule))
	_, err := limiter.Check(ctx, gcra(t, 1).Of("a"))
	var rejected *throttle.CommandRejected
	if !errors.As(err, &rejected) {
		t.Errorf("without the module: %v", err)
	}
}

func TestReplaces_a_connection_that_closed_while_idle(t *testing.T) {
	server := start(t, live.Module(t)...)
	limiter := limiterOf(t, server.rdb, patient)
	item := gcra(t, 9).Of("a")
	check(t, limiter, item)
	ctx := context.Background()
	for range 20 {
		server.rdb.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes")
		if d := check(t, limiter, item); d.Source != throttle.SourceServer {
			t.Fatal(d)
		}
	}
}

func TestKeeps_a_connection_that_was_idle_for_longer_than_a_call_may_take(t *testing.T) {
	server := start(t, live.Module(t)...)
	p := startProxy(t, server.addr)
	limiter := limiterOf(t, p.client(), throttle.WithTimeout(time.Second))
	item := gcra(t, 9).Of("a")
	live.Await(t, "a decision", func() bool {
		return check(t, limiter, item).Source == throttle.SourceServer
	})
	var before int
	p.set(func(p *proxy) { before = p.dials })
	time.Sleep(1200 * time.Millisecond)
	d := check(t, limiter, item)
	p.set(func(p *proxy) {
		if d.Source != throttle.SourceServer || p.dials != before {
			t.Errorf("%v after %d dials", d, p.dials-before)
		}
	})
}

func TestReplaces_a_connection_at_the_end_of_its_life(t *testing.T) {
	server := start(t, live.Module(t)...)
	p := startProxy(t, server.addr)
	for name, options := range map[string]*redis.Options{
		"idle": {ConnMaxIdleTime: time.Nanosecond}, "age": {ConnMaxLifetime: time.Nanosecond},
	} {
		options.Addr = p.addr
		rdb := redis.NewClient(options)
		defer rdb.Close()
		limiter := limiterOf(t, rdb, patient)
		var before int
		p.set(func(p *proxy) { before = p.dials })
		for range 3 {
			if d := check(t, limiter, gcra(t, 9).Of("a")); d.Source != throttle.SourceServer {
				t.Error(name, d)
			}
		}
		p.set(func(p *proxy) {
			if p.dials-before != 3 {
				t.Errorf("%s: %d dials", name, p.dials-before)
			}
		})
	}
}

func TestReplaces_a_tls_connection_that_closed_while_idle(t *testing.T) {
	server := start(t, live.Module(t)...)
	p := serveProxy(t, server.addr, tls.NewListener(listen(t), certificate(t)))
	limiter := limiterOf(t, redis.NewClient(&redis.Options{
		Addr: p.addr, TLSConfig: &tls.Config{InsecureSkipVerify: true},
	}), patient)
	item := gcra(t, 9).Of("a")
	for range 10 {
		if d := check(t, limiter, item); d.Source != throttle.SourceServer {
			t.Fatal(d)
		}
		p.closeAll()
		live.Await(t, "the proxy closes", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.open) == 0
		})
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// certificate returns the configuration of a server with a certificate of its own.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	own := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{own}}
}

func TestCounts_a_call_whose_reply_is_lost_once(t *testing.T) {
	server := start(t, live.Module(t)...)
	p := startProxy(t, server.addr)
	limiter := limiterOf(t, p.client(), patient)
	item := gcra(t, 9).Of("a")
	check(t, limiter, item)
	p.set(func(p *proxy) { p.loses = true })
	d := check(t, limiter, item)
	if d.Source != throttle.SourceError || d.Reason != throttle.ReasonConnection {
		t.Fatal(d)
	}
	if d := check(t, limiter, item); d.Remaining != 6 {
		t.Errorf("%v: 3 calls were sent", d)
	}
}

func TestFinds_the_new_primary_behind_one_address(t *testing.T) {
	old, fresh := start(t, live.Module(t)...), start(t, live.Module(t)...)
	p := startProxy(t, old.addr)
	limiter := limiterOf(t, p.client(), patient)
	item := gcra(t, 9).Of("a")
	check(t, limiter, item)
	host, port, _ := net.SplitHostPort(fresh.addr)
	if err := old.rdb.ReplicaOf(context.Background(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	p.set(func(p *proxy) { p.target = fresh.addr })
	d := check(t, limiter, item)
	if d.Source != throttle.SourceError || d.Reason != throttle.ReasonServer {
		t.Fatal(d)
	}
	if d := check(t, limiter, item); d.Source != throttle.SourceServer {
		t.Error(d)
	}
}

func TestRejects_a_wrong_password_and_calls_the_provider_again(t *testing.T) {
	server := start(t, append(live.Module(t), "--requirepass", "secret")...)
	password := atomic.Pointer[string]{}
	wrong, right := "wrong", "secret"
	password.Store(&wrong)
	rdb := redis.NewClient(&redis.Options{
		Addr: server.addr, CredentialsProvider: func() (string, string) {
			return "default", *password.Load()
		},
	})
	pause := 50 * time.Millisecond
	limiter := limiterOf(t, rdb, patient, throttle.WithBreaker(5, pause))
	_, err := limiter.Check(context.Background(), gcra(t, 1).Of("a"))
	var rejected *throttle.CommandRejected
	if !errors.As(err, &rejected) || rejected.Kind != "WRONGPASS" {
		t.Fatal(err)
	}
	password.Store(&right)
	live.Await(t, "a login with the new password", func() bool {
		d, err := limiter.Check(context.Background(), gcra(t, 1).Of("a"))
		return err == nil && d.Source == throttle.SourceServer
	})
}

func TestNeeds_no_right_to_ping(t *testing.T) {
	server := start(t, live.Module(t)...)
	err := server.rdb.Do(context.Background(), "ACL", "SETUSER", "app", "on", ">secret", "~rl:*",
		"+rl.gcra").Err()
	if err != nil {
		t.Fatal(err)
	}
	limiter := limiterOf(t, redis.NewClient(&redis.Options{
		Addr: server.addr, Username: "app", Password: "secret",
	}), patient)
	if d := check(t, limiter, gcra(t, 1).Of("a")); d.Source != throttle.SourceServer {
		t.Error(d)
	}
}

func TestRefuses_clients_that_it_cannot_adapt(t *testing.T) {
	var none *redis.Client
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for wanted, client := range map[string]redis.UniversalClient{
		"no Ring": ring, "not a nil *redis.Client": none, "not <nil>": nil,
	} {
		var wrong *throttle.InvalidArgument
		_, err := throttle.New(Adapt(client))
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%s: %v", wanted, err)
		}
	}
}

// rotation is a provider of credentials that are replaced while connections use them.
type rotation struct {
	mu        sync.Mutex
	user      string
	listeners map[auth.CredentialsListener]bool
}

func (r *rotation) Subscribe(
	listener auth.CredentialsListener,
) (auth.Credentials, auth.UnsubscribeFunc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners[listener] = true
	return auth.NewBasicCredentials(r.user, "secret"), func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, listener)
		return nil
	}, nil
}

func (r *rotation) replace(user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user = user
	for listener := range r.listeners {
		listener.OnNext(auth.NewBasicCredentials(user, "secret"))
	}
}

func TestLogs_in_again_when_the_credentials_are_replaced(t *testing.T) {
	server := start(t, live.Module(t)...)
	ctx := context.Background()
	for _, user := range []string{"one", "two"} {
		server.rdb.ACLSetUser(ctx, user, "on", ">secret", "~*", "+@all")
	}
	provider := &rotation{user: "one", listeners: map[auth.CredentialsListener]bool{}}
	rdb := redis.NewClient(&redis.Options{
		Addr: server.addr, StreamingCredentialsProvider: provider,
	})
	defer rdb.Close()
	limiter := limiterOf(t, rdb, patient)
	for _, user := range []string{"one", "two"} {
		provider.replace(user)
		if d := check(t, limiter, gcra(t, 9).Of("a")); d.Source != throttle.SourceServer {
			t.Fatal(d)
		}
		live.Await(t, "the limiter has one connection, as "+user, func() bool {
			clients := server.rdb.ClientList(ctx).Val()
			return strings.Count(clients, "user="+user) == 1 && strings.Count(clients, "\n") == 2
		})
	}
	if err := limiter.Close(ctx); err != nil || len(provider.listeners) > 0 {
		t.Errorf("after Close: %d listeners, %v", len(provider.listeners), err)
	}
}
