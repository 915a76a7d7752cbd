package redisrate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"redis-throttle.invalid/go/internal/live"
)

const (
	original = "github.com/go-redis/redis_rate/v10"
	version  = "v10.0.1"
	checksum = "h1:calPxi7tVlxojKunJwQ72kwfozdy25RjA0bCj1h0MUo="
)

// fetched returns the folder of the original's source, which the go command fetches.
func fetched(t *testing.T) string {
	t.Helper()
	command := exec.Command("go", "mod", "download", "-json", original+"@"+version)
	command.Dir = t.TempDir()
	output, err := command.Output()
	var module struct{ Dir, Sum string }
	if err != nil || json.Unmarshal(output, &module) != nil || module.Dir == "" {
		live.Lacks(t, fmt.Sprintf("%s cannot be fetched: %v %s", original, err, output))
	}
	if module.Sum != checksum {
		t.Fatal("the source of " + original + " is another: " + module.Sum)
	}
	return module.Dir
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replaced returns a text with another part. The part must be there.
func replaced(t *testing.T, text, old, part string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatal("the tests of " + original + " lack " + old)
	}
	return strings.ReplaceAll(text, old, part)
}

// The tests of redis_rate pass with another import line, with a client in place of its Ring, and
// with the address of a server of our own.
func TestPasses_the_tests_of_redis_rate(t *testing.T) {
	from, to := fetched(t), t.TempDir()
	addr := live.Start(t)
	adapter, _ := filepath.Abs("..")
	core, _ := filepath.Abs("../..")
	const imports = `redis_rate "redis-throttle.invalid/go/goredis/redisrate"`
	tests := replaced(t, read(t, from, "rate_test.go"), `"`+original+`"`, imports)
	tests = replaced(t, tests, `redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"server0": ":6379"},
	})`, `redis.NewClient(&redis.Options{Addr: "`+addr+`"})`)
	example := replaced(t, read(t, from, "example_test.go"), `"`+original+`"`, imports)
	example = replaced(t, example, "localhost:6379", addr)
	sums := read(t, from, "go.sum") + read(t, adapter, "go.sum")
	for name, text := range map[string]string{
		"rate_test.go": tests, "example_test.go": example, "go.sum": sums,
		"go.mod": fmt.Sprintf(`module original

go 1.25.0

require (
	github.com/stretchr/testify v1.8.1
	redis-throttle.invalid/go v0.0.0
	redis-throttle.invalid/go/goredis v0.0.0
)

replace redis-throttle.invalid/go => %s

replace redis-throttle.invalid/go/goredis => %s
`, core, adapter),
	} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The tests compare times with those of their machine, with a tolerance of 10 ms.
	for attempt := 1; ; attempt++ {
		command := exec.Command("go", "test", "-mod=mod", "-v", "-count=1", "./...")
		command.Dir = to
		output, err := command.CombinedOutput()
		passed := strings.Count(string(output), "\n--- PASS: ")
		if err == nil && passed == 6 {
			return
		}
		t.Logf("%d tests passed: %v\n%s", passed, err, output)
		if attempt == 5 {
			t.Fatal("the tests of " + original + " do not pass")
		}
	}
}
