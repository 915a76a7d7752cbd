package throttle

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// functionsText and scriptText are the library, for servers without the module.
var (
	//go:embed lua/redis_throttle.lua
	functionsText string
	//go:embed lua/redis_throttle_script.lua
	scriptText string
)

// libraryVersion returns the version of the library. A newer library also serves older clients.
var libraryVersion = sync.OnceValue(func() string {
	return regexp.MustCompile(`VERSION = '([\d.]+)'`).FindStringSubmatch(functionsText)[1]
})

// scriptSHA1 returns the hash by which the server knows the script.
var scriptSHA1 = sync.OnceValue(func() string {
	sum := sha1.Sum([]byte(scriptText))
	return hex.EncodeToString(sum[:])
})

// isOlder returns true if one version is older than another: 0.9.1 is older than 0.10.0. An
// unreadable one counts as older.
func isOlder(one, other string) bool {
	ours, theirs := strings.Split(one, "."), strings.Split(other, ".")
	for at := range theirs {
		wanted, _ := strconv.Atoi(theirs[at])
		found := -1
		if at < len(ours) {
			if number, err := strconv.Atoi(ours[at]); err == nil {
				found = number
			}
		}
		if found != wanted {
			return found < wanted
		}
	}
	return false
}
