package throttle

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// partMax is the maximum length of an encoded part of a key, in bytes. Longer parts are hashed.
const partMax = 128

// processKey is the key of the hashes of a limiter without a secret.
var processKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // It never fails.
	return key
})

// keys builds the keys of one limiter: prefix:rule:subject.
type keys struct {
	prefix      string
	isTagged    bool
	secret      []byte
	hashesParts bool
}

func newKeys(prefix, hashTag, secret string) (*keys, error) {
	isBad := func(r rune) bool {
		return r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r)
	}
	if strings.ContainsFunc(prefix, isBad) || !utf8.ValidString(prefix) {
		return nil, invalid("prefix", "no braces, spaces or control characters")
	}
	if hashTag != "" && hashTag != "subject" {
		return nil, invalid("hashTag", "subject")
	}
	if secret != "" && len(secret) < 16 {
		return nil, invalid("hmacSecret", "at least 16 bytes")
	}
	if prefix != "" {
		prefix += ":"
	}
	return &keys{prefix, hashTag != "", []byte(secret), secret != ""}, nil
}

// key returns the key of a subject under a rule. The tag is nil unless the call has one.
func (k *keys) key(rule, subject string, tag *string) (string, error) {
	encoded, err := k.part("subject", subject)
	if err != nil {
		return "", err
	}
	front := k.prefix
	switch {
	case tag != nil:
		part, err := k.part("tag", *tag)
		if err != nil {
			return "", err
		}
		front += "{" + part + "}:"
	case k.isTagged:
		encoded = "{" + encoded + "}"
	}
	return front + encode(rule) + ":" + encoded, nil
}

// keyHash returns 16 hexadecimal digits of the subject's HMAC, for logs. The plain hash of an
// address could be reversed.
func (k *keys) keyHash(subject string) string {
	key := k.secret
	if !k.hashesParts {
		key = processKey()
	}
	return hashed(key, subject)[:16]
}

// part returns a part of a key in its encoded form. A hash begins with a colon, which no encoded
// part does.
func (k *keys) part(argument, text string) (string, error) {
	if text == "" || !utf8.ValidString(text) {
		return "", invalid(argument, "a text in UTF-8 that is not empty")
	}
	if k.hashesParts {
		return ":" + hashed(k.secret, text), nil
	}
	encoded := encode(text)
	if len(encoded) > partMax {
		sum := sha256.Sum256([]byte(text))
		return ":" + hex.EncodeToString(sum[:]), nil
	}
	return encoded, nil
}

func hashed(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// encode percent-encodes the bytes that would end a part or a hash tag, or are unreadable in a log.
func encode(text string) string {
	isSpecial := func(c byte) bool {
		return c <= ' ' || c == 0x7f || strings.IndexByte("%:{}", c) >= 0
	}
	at := 0
	for at < len(text) && !isSpecial(text[at]) {
		at++
	}
	if at == len(text) {
		return text
	}
	var encoded strings.Builder
	encoded.WriteString(text[:at])
	for _, c := range []byte(text[at:]) {
		if isSpecial(c) {
			fmt.Fprintf(&encoded, "%%%02X", c)
		} else {
			encoded.WriteByte(c)
		}
	}
	return encoded.String()
}
