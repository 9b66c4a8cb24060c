// Package base62 makes the random text of ids and secrets: characters of [0-9A-Za-z], which need no escaping in a URL, a
// header or a file name, and which a double click selects as one word. It imports no package of this module, so both auth
// and conversation can import it.
package base62

import "crypto/rand"

// Alphabet has the base62 digits in ascending byte order, so texts of the same length sort like the numbers that they
// encode.
const Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Random returns n random characters of [Alphabet], 5.95 bits each, from crypto/rand. It may be called from any goroutine.
func Random(n int) string {
	const fair = 256 - 256%len(Alphabet) // larger bytes would favour the first 8 characters, as 256 = 4·62 + 8
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
