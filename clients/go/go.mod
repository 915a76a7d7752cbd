module redis-throttle.invalid/go

go 1.25.0
