package goredis

import (
	"bufio"
	"errors"
	"io"
	"strconv"

	throttle "redis-throttle.invalid/go"
)

// The bounds of a reply. The longest one of a server is its slot map.
const (
	bulkMax  = 1 << 20
	arrayMax = 1 << 17
	depthMax = 8
)

var errNoReply = errors.New("the bytes are no reply of RESP2")

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

// readReply reads a reply: an int64, a string, nil, or a []any of these. An error reply is a
// [throttle.ServerError], also inside of an array.
func readReply(from *bufio.Reader, depth int) (any, error) {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > depthMax {
		return nil, errNoReply
	}
	kind, line := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return string(line), nil
	case '-':
		return nil, throttle.ServerError(line)
	case ':', '$', '*':
	default:
		return nil, errNoReply
	}
	number, ok := integer(line)
	switch {
	case !ok:
		return nil, errNoReply
	case kind == ':':
		return number, nil
	case number == -1:
		return nil, nil
	case kind == '$':
		return readBulk(from, number)
	}
	return readArray(from, number, depth)
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

func readBulk(from *bufio.Reader, length int64) (any, error) {
	if length < 0 || length > bulkMax {
		return nil, errNoReply
	}
	bulk := make([]byte, length+2)
	if _, err := io.ReadFull(from, bulk); err != nil {
		return nil, err
	}
	if string(bulk[length:]) != "\r\n" {
		return nil, errNoReply
	}
	return string(bulk[:length]), nil
}

func readArray(from *bufio.Reader, length int64, depth int) (any, error) {
	if length < 0 || length > arrayMax {
		return nil, errNoReply
	}
	// The server says the length before it sends the elements.
	all := make([]any, 0, min(length, 32))
	for range length {
		one, err := readReply(from, depth+1)
		var said throttle.ServerError
		switch {
		case errors.As(err, &said):
			one = said
		case err != nil:
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
