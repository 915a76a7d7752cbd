package goredis

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// proxy forwards connections to a server, and can fall silent or lose replies.
type proxy struct {
	addr string

	mu     sync.Mutex
	target string
	// isSilent stops all that arrives; connections that are open then stay silent for ever.
	isSilent bool
	// loses says whether the next reply is lost with its connection.
	loses bool
	dials int
	open  map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	return serveProxy(t, target, listen(t))
}

// serveProxy serves the connections of a listener, such as one with TLS.
func serveProxy(t *testing.T, target string, listener net.Listener) *proxy {
	t.Helper()
	p := &proxy{addr: listener.Addr().String(), target: target, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = listener.Close()
		p.closeAll()
	})
	go p.accept(listener)
	return p
}

// accept serves connections until the listener closes.
func (p *proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go p.serve(conn)
	}
}

func (p *proxy) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: p.addr})
}

// set changes the proxy.
func (p *proxy) set(change func(p *proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *proxy) closeAll() {
	p.set(func(p *proxy) {
		for conn := range p.open {
			_ = conn.Close()
		}
	})
}

func (p *proxy) serve(client net.Conn) {
	p.mu.Lock()
	p.dials++
	target := p.target
	p.mu.Unlock()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.set(func(p *proxy) { p.open[client], p.open[server] = true, true })
	var both sync.WaitGroup
	isDead := false
	forward := func(to, from net.Conn, isReply bool) {
		defer func() { _, _ = to.Close(), from.Close() }()
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			p.mu.Lock()
			isDead = isDead || p.isSilent
			drop := isDead
			lose := isReply && p.loses
			if lose {
				p.loses = false
			}
			p.mu.Unlock()
			if lose {
				return
			}
			if !drop {
				if _, err := to.Write(buffer[:n]); err != nil {
					return
				}
			}
		}
	}
	both.Go(func() { forward(server, client, false) })
	both.Go(func() { forward(client, server, true) })
	both.Wait()
	p.set(func(p *proxy) {
		delete(p.open, client)
		delete(p.open, server)
	})
}
