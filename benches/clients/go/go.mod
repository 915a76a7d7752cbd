module redis-throttle.invalid/go/benches/clients/go

go 1.25.0

require (
	github.com/go-chi/httprate v0.16.1
	github.com/go-chi/httprate-redis v0.6.0
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/redis/go-redis/v9 v9.22.0
	redis-throttle.invalid/go v0.3.0
	redis-throttle.invalid/go/goredis v0.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace (
	redis-throttle.invalid/go => ../../../clients/go
	redis-throttle.invalid/go/goredis => ../../../clients/go/goredis
)
