// Package base62 makes the random text of ids and secrets, from the characters [0-9A-Za-z]. Such text needs no escaping in
// a URL, a header or a file name, and a double click selects it as one word. The package imports no package of this module,
// so auth and conversation can import it.
package base62

import "crypto/rand"

// Alphabet contains the base62 digits in ascending byte order. So texts of the same length sort in the order of the numbers
// that they encode.
const Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Random returns n characters of [Alphabet], chosen with crypto/rand. Each character has 5.95 random bits. Random may be
// called from any goroutine.
func Random(n int) string {
	const fair = 256 - 256%len(Alphabet) // skip larger bytes: 256 = 4·62 + 8, so they would make 8 characters more likely
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
