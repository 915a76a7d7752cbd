package web

import "strings"

var partEscapes = strings.NewReplacer("%", "%25", "|", "%7C")

// Joined returns the subject of a request that several parts identify, such as its tenant and its
// API key. Other parts have another subject, because a bar inside of a part is escaped. It is empty
// if a part is.
func Joined(parts []string) string {
	escaped := make([]string, len(parts))
	for at, part := range parts {
		if part == "" {
			return ""
		}
		escaped[at] = partEscapes.Replace(part)
	}
	return strings.Join(escaped, "|")
}

// Only returns the value of a field that occurs once; otherwise an empty text, because which of
// several values counts would be the client's choice.
func Only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// Latin1 returns the text whose characters are the bytes of a field's value. The clients of all
// languages read fields so, and then have the same keys.
func Latin1(value string) string {
	var text strings.Builder
	for _, char := range []byte(value) {
		text.WriteRune(rune(char))
	}
	return text.String()
}
