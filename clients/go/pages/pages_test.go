// Package pages runs the programs in Go of the repository's pages.
//
// A program is a block in Go that names the client. If its package is main it runs by itself;
// otherwise a test in testdata calls it. The other blocks, of a driver alone, belong to
// tests/snippets.rs of the repository.
package pages

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"redis-throttle.invalid/go/internal/live"

	// The programs import these. Here they keep them in go.mod and go.sum.
	_ "github.com/gin-gonic/gin"
	_ "github.com/go-chi/chi/v5"
	_ "redis-throttle.invalid/go/goredis/redisrate"
	_ "redis-throttle.invalid/go/grpcthrottle"
	_ "redis-throttle.invalid/go/httpthrottle"
)

const (
	root = "../../.."
	page = "docs/clients/go.md"
	// printed is what a quick start prints.
	printed = "allowed, 9 left\n"
)

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// program is a program of a page. Its folder in the temporary module is p and its number.
type program struct {
	place  string
	text   string
	folder string
}

// isMain returns true if the program runs by itself. Another is a package.
func (p program) isMain() bool { return strings.HasPrefix(p.text, "package main\n") }

// test returns the test of a package, which is in the file of testdata with its name.
func (p program) test(t *testing.T) string {
	t.Helper()
	clause, _, _ := strings.Cut(p.text, "\n")
	name := strings.TrimPrefix(clause, "package ")
	return read(t, filepath.Join("testdata", name+"_test.go"))
}

// programs returns the programs of all pages.
func programs(t *testing.T) []program {
	t.Helper()
	skipped := []string{"dist", "node_modules", "target"}
	var found []program
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (name[0] == '.' || slices.Contains(skipped, name)) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		place, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text := read(t, path)
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			language, block := text[at[2]:at[3]], text[at[4]:at[5]]
			if language == "go" && strings.Contains(block, "redis-throttle.invalid/go") {
				line := strings.Count(text[:at[0]], "\n") + 1
				found = append(found, program{
					place: fmt.Sprint(place, ":", line), text: block,
					folder: fmt.Sprint("p", len(found)),
				})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tool runs a command in a folder and returns its standard output.
func tool(t *testing.T, folder, name string, words ...string) string {
	t.Helper()
	command := exec.Command(name, words...)
	command.Dir = folder
	// The programs have the sums of this module, and the modules of the client have none.
	command.Env = append(os.Environ(), "GOSUMDB=off", "GOWORK=off")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, words, err, out, stderr.String())
	}
	return string(out)
}

// onServer returns a program or a test with the server's address, and with time for a busy machine.
func onServer(text, addr string) string {
	text = strings.ReplaceAll(text, "127.0.0.1:7777", addr)
	return strings.ReplaceAll(text, "Adapt(rdb)", "Adapt(rdb), throttle.WithTimeout(6e10)")
}

// module writes the programs, with their tests, into a module with the requirements of this one.
func module(t *testing.T, all []program, addr string) string {
	t.Helper()
	folder, client := t.TempDir(), absolute(t, "..")
	write(t, filepath.Join(folder, "go.sum"), read(t, "go.sum"))
	requirements := strings.ReplaceAll(read(t, "go.mod"), "=> ../", "=> "+client+"/")
	write(t, filepath.Join(folder, "go.mod"), requirements)
	for _, one := range all {
		file := "program.go"
		if strings.Contains(one.text, "(t *testing.T)") {
			file = "program_test.go"
		} else if !one.isMain() {
			write(t, filepath.Join(folder, one.folder, "call_test.go"), onServer(one.test(t), addr))
		}
		write(t, filepath.Join(folder, one.folder, file), onServer(one.text, addr))
	}
	return folder
}

func TestThe_pages_have_programs(t *testing.T) {
	var pages []string
	for _, one := range programs(t) {
		place, _, _ := strings.Cut(one.place, ":")
		pages = append(pages, place)
	}
	for _, want := range []string{page, "clients/go/README.md"} {
		if !slices.Contains(pages, want) {
			t.Errorf("%s has no program", want)
		}
	}
}

func TestPrograms_run(t *testing.T) {
	addr := live.Start(t, "--rl.debug-commands", "yes")
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	// Calls may take longer than the time in which a unit returns.
	if err := rdb.Do(t.Context(), "RL.DEBUG", "CLOCK", "FREEZE").Err(); err != nil {
		t.Fatal(err)
	}
	all := programs(t)
	folder := module(t, all, addr)
	tool(t, folder, "go", "vet", "./...")
	for _, one := range all {
		t.Run(one.place, func(t *testing.T) {
			if err := rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if !one.isMain() {
				tool(t, folder, "go", "test", "-count=1", "./"+one.folder)
			} else if got := tool(t, folder, "go", "run", "./"+one.folder); got != printed {
				t.Errorf("printed %q", got)
			}
		})
	}
}

// TestQuick_start_runs_after_the_install_lines follows the page in a folder next to the clone.
func TestQuick_start_runs_after_the_install_lines(t *testing.T) {
	addr := live.Start(t)
	folder := t.TempDir()
	if err := os.Symlink(absolute(t, root), filepath.Join(folder, "redis-throttle")); err != nil {
		t.Fatal(err)
	}
	blocks := fence.FindAllStringSubmatch(read(t, filepath.Join(root, page)), 2)
	if len(blocks) != 2 || blocks[0][1] != "sh" || blocks[1][1] != "go" {
		t.Fatalf("%s does not begin with the install lines and the quick start", page)
	}
	tool(t, folder, "sh", "-e", "-c", blocks[0][2])
	app := filepath.Join(folder, "app")
	write(t, filepath.Join(app, "main.go"), onServer(blocks[1][2], addr))
	if got := tool(t, app, "go", "run", "."); got != printed {
		t.Errorf("printed %q", got)
	}
}
