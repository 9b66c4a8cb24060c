package redis

// packedReader reads a MessagePack text of lists, integers and texts.
type packedReader struct {
	rest string // the part of the text that has not been read
	bad  bool   // the text is malformed
}

func (r *packedReader) byte() byte {
	if r.rest == "" {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// listLength reads the header of a MessagePack list and returns the number of its elements.
func (r *packedReader) listLength() int {
	switch b := r.byte(); {
	case b&0xF0 == 0x90:
		return int(b & 0x0F)
	case b == 0xDC || b == 0xDD:
		return int(r.bigEndian(2 << (b - 0xDC)))
	}
	r.bad = true
	return 0
}

// number reads a MessagePack integer.
func (r *packedReader) number() int64 {
	switch b := r.byte(); {
	case b < 0x80 || b >= 0xE0: // the byte is the number
		return int64(int8(b))
	case 0xCC <= b && b <= 0xCF: // unsigned, of 1, 2, 4 or 8 bytes
		return int64(r.bigEndian(1 << (b - 0xCC)))
	case 0xD0 <= b && b <= 0xD3: // signed, of 1, 2, 4 or 8 bytes
		size := 1 << (b - 0xD0)
		unused := 64 - 8*size
		return int64(r.bigEndian(size)<<unused) >> unused
	}
	r.bad = true
	return 0
}

// bigEndian reads an unsigned big-endian number of size bytes.
func (r *packedReader) bigEndian(size int) (n uint64) {
	for range size {
		n = n<<8 | uint64(r.byte())
	}
	return n
}

// text reads a MessagePack text. The result shares the memory of the whole.
func (r *packedReader) text() string {
	size := uint64(0)
	switch b := r.byte(); {
	case b&0xE0 == 0xA0:
		size = uint64(b & 0x1F)
	case 0xD9 <= b && b <= 0xDB:
		size = r.bigEndian(1 << (b - 0xD9))
	default:
		r.bad = true
	}
	if size > uint64(len(r.rest)) {
		r.bad, size = true, 0
	}
	taken := r.rest[:size]
	r.rest = r.rest[size:]
	return taken
}

// packedList begins to read a list of texts that a script has packed with cmsgpack, and returns the number of the texts. The text
// packed may be empty for an empty list.
func packedList(packed string) (r packedReader, length int) {
	if packed == "" {
		return r, 0
	}
	r.rest = packed
	length = r.listLength()
	if length > len(r.rest) { // each text takes at least one byte
		r.bad, length = true, 0
	}
	return r, length
}
