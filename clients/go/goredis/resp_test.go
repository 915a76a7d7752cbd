package goredis

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	throttle "redis-throttle.invalid/go"
)

func decoded(text string) (any, error) {
	reply, _, err := decode([]byte(text))
	return reply, err
}

func TestReads_each_type_of_a_reply(t *testing.T) {
	for text, expected := range map[string]any{
		"+OK\r\n": "OK", "$2\r\nOK\r\n": "OK", "$0\r\n\r\n": "", "$-1\r\n": nil, "*-1\r\n": nil,
		":7\r\n": int64(7), ":-1\r\n": int64(-1), ":0\r\n": int64(0),
		":9223372036854775807\r\n":  int64(9223372036854775807),
		":-9223372036854775808\r\n": int64(-9223372036854775808),
		"*0\r\n":                    []any{},
		"*3\r\n:1\r\n*1\r\n$1\r\na\r\n-ERR no\r\n": []any{
			int64(1), []any{"a"}, throttle.ServerError("ERR no"),
		},
	} {
		if got, err := decoded(text); err != nil || !reflect.DeepEqual(got, expected) {
			t.Errorf("%q: %#v, %v", text, got, err)
		}
	}
	_, err := decoded("-ERR invalid cost\r\n")
	if err != throttle.ServerError("ERR invalid cost") {
		t.Errorf("an error reply: %v", err)
	}
}

func TestRefuses_bytes_that_are_no_reply(t *testing.T) {
	for _, text := range []string{
		"", "\r\n", "+\n", ":\r\n", ":1", ":1\n", ":1 \r\n", ":--1\r\n", ":9223372036854775808\r\n",
		"$-2\r\n", "$2\r\nOKxx", "$3\r\nOK\r\n", "$1048577\r\n", "*-2\r\n", "*131073\r\n",
		"*2\r\n:1\r\n", ">1\r\n:1\r\n", "HTTP/1.1 400\r\n", strings.Repeat("*1\r\n", 10) + ":1\r\n",
		"+" + strings.Repeat("a", 1<<13) + "\r\n",
	} {
		got, err := decoded(text)
		var said throttle.ServerError
		if err == nil || errors.As(err, &said) {
			t.Errorf("%q: %#v, %v", text, got, err)
		}
	}
}

func TestReads_a_reply_that_arrives_in_parts(t *testing.T) {
	const text = "*3\r\n:12\r\n*1\r\n$2\r\nab\r\n-ERR no\r\n"
	for length := range len(text) {
		if got, _, err := decode([]byte(text[:length])); err != errIncomplete {
			t.Errorf("%q: %#v, %v", text[:length], got, err)
		}
	}
	if _, length, err := decode([]byte(text + ":1\r\n")); err != nil || length != len(text) {
		t.Error(length, err)
	}
}

// FuzzDecoder reads bytes of any shape, which must not panic.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("*2\r\n:1\r\n$-1\r\n"))
	f.Add([]byte("*3\r\n+OK\r\n-ERR no\r\n$1\r\na\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for {
			_, length, err := decode(text)
			var said throttle.ServerError
			if err != nil && !errors.As(err, &said) {
				return
			}
			text = text[length:]
		}
	})
}
