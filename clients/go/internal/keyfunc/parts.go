package keyfunc

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
