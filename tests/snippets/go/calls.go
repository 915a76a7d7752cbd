// Command calls makes calls through a driver with its default options, and prints how the last one
// ended.
//
//	calls DRIVER PORT TIMES [LOSSY]
//
// Each call has a key of its own. With LOSSY, a driver's connections to PORT go to that port.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// A caller makes one call of RL.GCRA.
type caller func(ctx context.Context, key string) error

func main() {
	times, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	call := connect(os.Args[1], net.JoinHostPort("127.0.0.1", os.Args[2]))
	for n := range times {
		began := time.Now()
		err = call(context.Background(), fmt.Sprintf("user:%d", n))
		if err != nil {
			fmt.Printf("lost after %.0f s\n", time.Since(began).Seconds())
			return
		}
	}
	fmt.Println("replied")
}

func connect(driver, server string) caller {
	switch driver {
	case "go-redis":
		client := redis.NewClient(&redis.Options{Addr: server})
		return func(ctx context.Context, key string) error {
			return client.Do(ctx, "RL.GCRA", key, 6, 10, 60).Err()
		}
	case "go-redis-cluster":
		client := clusterClient(server)
		return func(ctx context.Context, key string) error {
			return client.Do(ctx, "RL.GCRA", key, 6, 10, 60).Err()
		}
	case "go-redis-cluster-once":
		client := clusterClient(server)
		return func(ctx context.Context, key string) error {
			return client.Process(ctx, once{redis.NewCmd(ctx, "RL.GCRA", key, 6, 10, 60)})
		}
	case "rueidis":
		return rueidisCaller(server)
	}
	panic("unknown driver " + driver)
}

// once is a command that go-redis does not repeat.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func clusterClient(server string) *redis.ClusterClient {
	options := &redis.ClusterOptions{Addrs: []string{server}}
	if len(os.Args) > 4 {
		options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, lossy(address))
		}
	}
	return redis.NewClusterClient(options)
}

func rueidisCaller(server string) caller {
	options := rueidis.ClientOption{InitAddress: []string{server}}
	if len(os.Args) > 4 {
		options.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer,
			_ *tls.Config) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", lossy(address))
		}
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		panic(err)
	}
	return func(ctx context.Context, key string) error {
		call := client.B().Arbitrary("RL.GCRA").Keys(key).Args("6", "10", "60").Build()
		return client.Do(ctx, call).Error()
	}
}

// lossy returns the address to dial for a node's address.
func lossy(address string) string {
	if node, found := strings.CutSuffix(address, ":"+os.Args[2]); found {
		return node + ":" + os.Args[4]
	}
	return address
}
