// A service with limits: per client address and per API key, for pages, logins and a chat.
//
//	REDIS_URL=redis://127.0.0.1:7777 PORT=8080 go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options, err := redis.ParseURL(variable("REDIS_URL", "redis://127.0.0.1:7777"))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	timeout, err := number("TIMEOUT_MS", "1000")
	if err != nil {
		return err
	}
	silence, err := number("SILENCE_MS", "100")
	if err != nil {
		return err
	}
	limiter, err := throttle.New(goredis.Adapt(rdb),
		throttle.WithPrefix("example"),
		// In a cluster, the keys of all rules of one client are in one slot.
		throttle.WithHashTag(),
		throttle.WithTimeout(time.Duration(timeout)*time.Millisecond),
		throttle.WithSilence(time.Duration(silence)*time.Millisecond),
		// The back end on the server: auto, module, functions or script.
		throttle.WithBackend(throttle.Backend(variable("BACKEND", "auto"))),
	)
	if err != nil {
		return err
	}
	defer limiter.Close(context.Background())
	// The service starts even without the server.
	if _, err := limiter.Ready(ctx); err != nil {
		log.Print("no limits yet: ", err)
	}
	return serve(ctx, limiter)
}

// serve handles requests until the context ends.
func serve(ctx context.Context, limiter *throttle.Limiter) error {
	rows, err := number("EXPORT_ROWS", "50")
	if err != nil {
		return err
	}
	isComma := func(c rune) bool { return c == ',' }
	proxies := strings.FieldsFunc(os.Getenv("TRUSTED_PROXIES"), isComma)
	handler, err := routes(limiter, rows, proxies)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(variable("HOST", "127.0.0.1"), variable("PORT", "8080"))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// variable returns an environment variable.
func variable(name, otherwise string) string {
	if text := os.Getenv(name); text != "" {
		return text
	}
	return otherwise
}

func number(name, otherwise string) (int, error) {
	text := variable(name, otherwise)
	value, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s=%s is no number", name, text)
	}
	return value, nil
}
