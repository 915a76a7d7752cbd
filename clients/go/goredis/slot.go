package goredis

import "strings"

const slotCount = 16384

// slotOf returns the slot of a key in a cluster: of the text in its first braces, or of the key.
func slotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return int(crc16(key)) % slotCount
}

// crc16 returns the CRC-16/XMODEM of a text.
func crc16(text string) uint16 {
	const polynomial = 0x1021
	var crc uint16
	for _, c := range []byte(text) {
		crc ^= uint16(c) << 8
		for range 8 {
			isSet := crc&0x8000 != 0
			crc <<= 1
			if isSet {
				crc ^= polynomial
			}
		}
	}
	return crc
}
