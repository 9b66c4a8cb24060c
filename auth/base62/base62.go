// Package base62 makes the random text of ids and secrets: characters of [0-9A-Za-z], which need no escaping in a URL, a
// header or a file name, and which a double click selects as one word. It imports nothing of ours, so that both auth and
// conversation can use it.
package base62

import "crypto/rand"

// Alphabet holds the digits in their order: as bytes they sort as the numbers that they write.
const Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Random returns n random characters of [Alphabet], 5.95 bits each, from crypto/rand. It may be called from any goroutine.
func Random(n int) string {
	const fair = 256 - 256%len(Alphabet) // a byte from here on would favour the first characters
	out := make([]byte, 0, n)
	var random [32]byte
	for len(out) < n {
		rand.Read(random[:]) // never fails
		for _, b := range random {
			if int(b) < fair && len(out) < n {
				out = append(out, Alphabet[int(b)%len(Alphabet)])
			}
		}
	}
	return string(out)
}
