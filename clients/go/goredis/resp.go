package goredis

import (
	"bytes"
	"errors"
	"strconv"

	throttle "redis-throttle.invalid/go"
)

// The bounds of a reply. The longest one of a server is its slot map.
const (
	bulkMax  = 1 << 20
	arrayMax = 1 << 17
	depthMax = 8
	lineMax  = 1 << 12
	replyMax = 1 << 25
)

var (
	errNoReply    = errors.New("the bytes are no reply of RESP2")
	errIncomplete = errors.New("the reply is not complete")
)

// appendCommand appends a command as RESP2 writes it.
func appendCommand(to []byte, words []string) []byte {
	to = appendCount(to, '*', len(words))
	for _, word := range words {
		to = appendCount(to, '$', len(word))
		to = append(append(to, word...), "\r\n"...)
	}
	return to
}

func appendCount(to []byte, kind byte, count int) []byte {
	return append(strconv.AppendInt(append(to, kind), int64(count), 10), "\r\n"...)
}

// decode returns the reply at the beginning of some bytes, and its length: an int64, a string, nil,
// or a []any of these. An error reply is a [throttle.ServerError], also inside of an array. It
// returns errIncomplete if more bytes must follow.
func decode(from []byte) (any, int, error) { return decodeAt(from, 0, 0) }

// decodeAt returns a reply that begins at an index, and the index behind it.
func decodeAt(from []byte, at, depth int) (any, int, error) {
	line, next, err := lineAt(from, at)
	if err != nil {
		return nil, at, err
	}
	if len(line) < 1 || depth > depthMax {
		return nil, at, errNoReply
	}
	kind, line := line[0], line[1:]
	switch kind {
	case '+':
		return string(line), next, nil
	case '-':
		return nil, next, throttle.ServerError(line)
	case ':', '$', '*':
	default:
		return nil, at, errNoReply
	}
	number, ok := integer(line)
	switch {
	case !ok:
		return nil, at, errNoReply
	case kind == ':':
		return number, next, nil
	case number == -1:
		return nil, next, nil
	case kind == '$':
		return bulkAt(from, next, number)
	}
	return arrayAt(from, next, number, depth)
}

// lineAt returns a line without its end, and the index behind it.
func lineAt(from []byte, at int) ([]byte, int, error) {
	length := bytes.IndexByte(from[at:min(len(from), at+lineMax)], '\n')
	switch {
	case length < 0 && len(from)-at < lineMax:
		return nil, at, errIncomplete
	case length < 1 || from[at+length-1] != '\r':
		return nil, at, errNoReply
	}
	return from[at : at+length-1], at + length + 1, nil
}

// integer returns the number of a line. It does not allocate, as strconv would.
func integer(line []byte) (int64, bool) {
	isNegative := len(line) > 0 && line[0] == '-'
	if isNegative {
		line = line[1:]
	}
	if len(line) < 1 || len(line) > 19 {
		return 0, false
	}
	var number uint64
	for _, digit := range line {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		number = number*10 + uint64(digit-'0')
	}
	if isNegative {
		return -int64(number), number <= 1<<63
	}
	return int64(number), number < 1<<63
}

func bulkAt(from []byte, at int, length int64) (any, int, error) {
	if length < 0 || length > bulkMax {
		return nil, at, errNoReply
	}
	end := at + int(length)
	switch {
	case len(from) < end+2:
		return nil, at, errIncomplete
	case string(from[end:end+2]) != "\r\n":
		return nil, at, errNoReply
	}
	return string(from[at:end]), end + 2, nil
}

func arrayAt(from []byte, at int, length int64, depth int) (any, int, error) {
	if length < 0 || length > arrayMax {
		return nil, at, errNoReply
	}
	// The server says the length before it sends the elements.
	all := make([]any, 0, min(length, 32))
	for range length {
		one, next, err := decodeAt(from, at, depth+1)
		if said, ok := err.(throttle.ServerError); ok {
			one = said
		} else if err != nil {
			return nil, at, err
		}
		all, at = append(all, one), next
	}
	return all, at, nil
}
