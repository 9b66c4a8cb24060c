package redis

// packedReader reads the MessagePack text of packed counts, which contains only lists and integers.
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
