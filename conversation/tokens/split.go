package tokens

import (
	"unicode"
	"unicode/utf8"
)

// splitter returns the end of the first piece of a text. The text must be valid UTF-8 and not empty. No token spans two
// pieces.
//
// OpenAI defines the pieces by a regular expression for each vocabulary. A splitter does the same as the expression, in
// linear time and without allocations. A test compares it with the expression.
type splitter func(text string) int

// class describes a character for the regular expressions: a set of the flags below. Punctuation and symbols have no flag.
type class uint8

const (
	upper   class = 1 << iota // may stand in the first part of a word: an upper-case letter, a letter without case, a mark
	lower                     // may stand in the second part of a word: a lower-case letter, a letter without case, a mark
	letter                    // \p{L}
	number                    // \p{N}
	space                     // \s
	newline                   // \r or \n, which are also spaces

	mark = upper | lower // \p{M}, without other flags
)

// splitO200k returns the first piece of o200k_base. The alternatives of the expression are, in order:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func splitO200k(text string) int {
	first, start := classAt(text, 0)
	if first&letter != 0 {
		start = 0
	}
	if first&(number|newline) == 0 {
		end, capitals := word(text, start)
		if first == mark && (end == start || capitals) {
			end = start // the mark alone is a word, and the first alternative takes precedence over the second
		} else if end == start {
			return splitOther(text, first, "\r\n/")
		}
		return end + contraction(text[end:])
	}
	return splitOther(text, first, "\r\n/")
}

// word returns the end of the word that starts at a position, without a contraction: upper* lower+ or, if that does not
// match, upper+. Then capitals is true. If no word starts there, end is start.
func word(text string, start int) (end int, capitals bool) {
	end = start
	both := start // the end of the last character that is upper and lower
	c, size := classAt(text, end)
	for c&upper != 0 {
		end += size
		if c&lower != 0 {
			both = end
		}
		c, size = classAt(text, end)
	}
	switch {
	case c&lower != 0:
		for c&lower != 0 {
			end += size
			c, size = classAt(text, end)
		}
		return end, false
	case both > start:
		return both, false
	}
	return end, end > start
}

// splitCl100k returns the first piece of cl100k_base. The alternatives of the expression are, in order:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?\p{L}+
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func splitCl100k(text string) int {
	if n := contraction(text); n > 0 {
		return n
	}
	first, start := classAt(text, 0)
	if first&(number|newline) == 0 {
		end := start
		for c, size := classAt(text, end); c&letter != 0; c, size = classAt(text, end) {
			end += size
		}
		if end > start || first&letter != 0 {
			return end
		}
	}
	return splitOther(text, first, "\r\n")
}

// contraction returns the length of the contraction at the start of a text: (?i:'s|'t|'re|'ve|'m|'ll|'d). It returns 0 if
// there is none. The character U+017F is an s in another case.
func contraction(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	second := byte(0)
	if len(text) > 2 {
		second = text[2] | 0x20
	}
	switch first := text[1] | 0x20; {
	case first == 's' || first == 't' || first == 'm' || first == 'd':
		return 2
	case (first == 'r' || first == 'v') && second == 'e', first == 'l' && second == 'l', text[1:min(3, len(text))] == "ſ":
		return 3
	}
	return 0
}

// splitOther returns the end of the first piece of a text that does not start with a word. first is the class of the first
// character. A piece of punctuation also takes the characters of closing that follow it.
func splitOther(text string, first class, closing string) int {
	if first&number != 0 {
		return span(text, 0, 3, func(c class) bool { return c&number != 0 })
	}
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	if end := span(text, start, len(text), func(c class) bool { return c&(letter|number|space) == 0 }); end > start {
		for end < len(text) && containsByte(closing, text[end]) {
			end++
		}
		return end
	}
	return splitSpace(text)
}

// splitSpace returns the end of the first piece of a text that starts with whitespace: after the last newline of this
// whitespace. If the whitespace has no newline, its last character belongs to the next piece, unless it is the only one or
// the text ends there.
func splitSpace(text string) int {
	end, last, lines := 0, 0, 0
	for c, size := classAt(text, 0); c&space != 0; c, size = classAt(text, end) {
		last = end
		end += size
		if c&newline != 0 {
			lines = end
		}
	}
	switch {
	case lines > 0:
		return lines
	case end == len(text) || last == 0:
		return end
	}
	return last
}

// span returns the end of the characters from start on that belong to a set, but of most characters at most.
func span(text string, start, most int, in func(class) bool) int {
	end := start
	for range most {
		c, size := classAt(text, end)
		if size == 0 || !in(c) {
			break
		}
		end += size
	}
	return end
}

func containsByte(set string, b byte) bool {
	for i := range len(set) {
		if set[i] == b {
			return true
		}
	}
	return false
}

// classAt returns the class and the size of the character at a position. At the end of the text, both are 0.
func classAt(text string, at int) (class, int) {
	if at >= len(text) {
		return 0, 0
	}
	if b := text[at]; b < utf8.RuneSelf {
		return ascii[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[at:])
	return classOf(r), size
}

// ascii has the classes of the ASCII characters.
var ascii = func() (classes [utf8.RuneSelf]class) {
	for r := range classes {
		classes[r] = classOf(rune(r))
	}
	return classes
}()

func classOf(r rune) class {
	switch {
	case unicode.IsLetter(r):
		switch {
		case unicode.IsLower(r): // \p{Ll}
			return letter | lower
		case unicode.In(r, unicode.Lu, unicode.Lt):
			return letter | upper
		}
		return letter | upper | lower
	case unicode.IsMark(r):
		return mark
	case unicode.IsNumber(r):
		return number
	case r == '\r' || r == '\n':
		return space | newline
	case unicode.IsSpace(r):
		return space
	}
	return 0
}
