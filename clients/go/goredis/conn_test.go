package goredis

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

func TestGoes_on_with_a_reply_after_an_interruption(t *testing.T) {
	server := start(t, live.Module(t)...)
	conn, err := Adapt(server.rdb).Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for at := range 500 {
		word := strconv.Itoa(at)
		if err := conn.Send([]string{"ECHO", word}); err != nil {
			t.Fatal(err)
		}
		// It may end this Receive, or the next one, which then carries another command.
		go conn.Interrupt()
		reply, err := conn.Receive()
		for err == throttle.ErrInterrupted {
			reply, err = conn.Receive()
		}
		if err != nil || reply != word {
			t.Fatal(reply, err)
		}
	}
	server.rdb.Do(t.Context(), "CLIENT", "PAUSE", "60000", "WRITE")
	if err := conn.Send([]string{"SET", "late", "1"}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Millisecond, conn.Interrupt)
	if reply, err := conn.Receive(); err != throttle.ErrInterrupted {
		t.Fatal(reply, err)
	}
	server.rdb.Do(t.Context(), "CLIENT", "UNPAUSE")
	reply, err := conn.Receive()
	for err == throttle.ErrInterrupted {
		reply, err = conn.Receive()
	}
	if err != nil || reply != "OK" {
		t.Fatal(reply, err)
	}
}

// startReplying returns the address of a server that replies to each command of the module with the
// text.
func startReplying(t *testing.T, text string) string {
	t.Helper()
	listener := listen(t)
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		command := make([]byte, 1<<12)
		for {
			n, err := conn.Read(command)
			if err != nil {
				return
			}
			reply := text
			if !strings.Contains(string(command[:n]), "RL.") {
				reply = strings.Repeat("-ERR no\r\n", strings.Count(string(command[:n]), "*"))
			}
			if _, err := conn.Write([]byte(reply)); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

func TestReads_no_reply_that_another_call_left(t *testing.T) {
	const allowed = "*5\r\n:1\r\n:9\r\n:8\r\n:0\r\n:1\r\n"
	const denied = "*5\r\n:0\r\n:9\r\n:0\r\n:1\r\n:1\r\n"
	rdb := redis.NewClient(&redis.Options{Addr: startReplying(t, allowed+denied)})
	defer rdb.Close()
	limiter := limiterOf(t, rdb, patient)
	for range 3 {
		if d := check(t, limiter, gcra(t, 9).Of("a")); !d.Allowed || d.Source != "server" {
			t.Error(d)
		}
	}
}

// dripping is a socket on which a byte arrives at each moment, for a minute.
type dripping struct {
	net.Conn
	until, deadline time.Time
	sent            int
}

func (d *dripping) SetReadDeadline(deadline time.Time) error {
	d.deadline = deadline
	return nil
}

func (d *dripping) SetDeadline(deadline time.Time) error { return d.SetReadDeadline(deadline) }

func (d *dripping) Read(into []byte) (int, error) {
	switch now := time.Now(); {
	case now.After(d.until):
		return 0, io.EOF
	case !d.deadline.IsZero() && now.After(d.deadline):
		return 0, os.ErrDeadlineExceeded
	}
	const begin = "$1048576\r\n"
	into[0] = begin[d.sent%len(begin)]
	d.sent++
	return 1, nil
}

func TestEnds_a_reply_that_arrives_byte_by_byte(t *testing.T) {
	w := newWire(&dripping{until: time.Now().Add(time.Minute)})
	w.interrupt()
	if _, err := w.reply(); err != throttle.ErrInterrupted {
		t.Error("the interruption did not end it:", err)
	}
}

func TestCloses_a_connection_whose_login_panics(t *testing.T) {
	server := start(t, live.Module(t)...)
	boom := func(context.Context, *redis.Conn) error { panic("boom") }
	clients := []redis.UniversalClient{
		redis.NewClient(&redis.Options{Addr: server.addr, OnConnect: boom}),
		redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{server.addr}, OnConnect: boom,
		}),
		redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { panic("boom") },
		}),
	}
	for _, client := range clients {
		d := check(t, limiterOf(t, client, patient), gcra(t, 9).Of("a"))
		if d.Reason != throttle.ReasonConnection {
			t.Error(d)
		}
		live.Await(t, "the connection is closed", func() bool {
			return strings.Count(server.rdb.ClientList(context.Background()).Val(), "\n") == 1
		})
		_ = client.Close()
	}
}

func TestEnds_a_login_at_Close(t *testing.T) {
	listener := listen(t)
	defer listener.Close()
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String()})
	defer rdb.Close()
	limiter := limiterOf(t, rdb, throttle.WithTimeout(time.Minute))
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = limiter.Check(context.Background(), gcra(t, 9).Of("a"))
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The first bytes of the login.
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_ = limiter.Close(context.Background())
	<-called
	if took := time.Since(began); took > 20*time.Second {
		t.Error("Close took", took)
	}
}

// subscribed is a provider whose subscriptions end by a function.
type subscribed struct {
	listeners   chan auth.CredentialsListener
	unsubscribe auth.UnsubscribeFunc
}

func (s *subscribed) Subscribe(
	listener auth.CredentialsListener,
) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s.listeners <- listener
	return auth.NewBasicCredentials("default", ""), s.unsubscribe, nil
}

func TestDoes_not_wait_for_the_end_of_a_subscription(t *testing.T) {
	server := start(t, live.Module(t)...)
	release := make(chan struct{})
	var ended atomic.Bool
	provider := &subscribed{listeners: make(chan auth.CredentialsListener, 9)}
	provider.unsubscribe = func() error {
		<-release
		ended.Store(true)
		panic("boom")
	}
	rdb := redis.NewClient(&redis.Options{
		Addr: server.addr, StreamingCredentialsProvider: provider,
	})
	defer rdb.Close()
	limiter := limiterOf(t, rdb, patient)
	check(t, limiter, gcra(t, 9).Of("a"))
	(<-provider.listeners).OnNext(nil)
	if d := check(t, limiter, gcra(t, 9).Of("a")); d.Source != throttle.SourceServer {
		t.Error(d)
	}
	if ended.Load() {
		t.Error("the subscription has ended")
	}
	close(release)
	if err := limiter.Close(context.Background()); err != nil || !ended.Load() {
		t.Error("Close did not wait for the subscriptions:", err)
	}
}

// joined writes what is held in one piece.
type joined struct {
	net.Conn
	isHeld bool
	held   []byte
}

func (j *joined) Write(bytes []byte) (int, error) {
	if !j.isHeld {
		return j.Conn.Write(bytes)
	}
	j.held = append(j.held, bytes...)
	return len(bytes), nil
}

func TestFinds_a_tls_record_that_was_read_together_with_a_reply(t *testing.T) {
	listener := listen(t)
	defer listener.Close()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	far := &joined{Conn: accepted}
	server := tls.Server(far, certificate(t))
	go func() {
		_ = server.Handshake()
		far.isHeld = true
		_, _ = server.Write([]byte("+first\r\n"))
		_, _ = server.Write([]byte("+second\r\n"))
		_, _ = accepted.Write(far.held)
	}()
	w := newWire(tls.Client(raw, &tls.Config{InsecureSkipVerify: true}))
	reply := make([]byte, 1<<12)
	if n, err := w.Read(reply); err != nil || string(reply[:n]) != "+first\r\n" {
		t.Fatal(string(reply[:n]), err)
	}
	if w.check() == nil {
		t.Error("the second reply would be that of the next command")
	}
}
