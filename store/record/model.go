package record

import (
	"encoding/binary"
	"math"

	"parley/conversation"
)

// These are the flags of a model's configuration. The parts follow the flag byte in this order. Each part may be missing, because
// 0 is a valid temperature and a valid seed.
const (
	hasTemperature = 1 << iota
	hasTopP
	hasSeed
)

// AppendModel appends the record of c to b and returns the extended slice.
func AppendModel(b []byte, c *conversation.ModelConfig) []byte {
	b = appendText(b, c.Model)
	b = appendInts(b, c.MaxOutputTokens, len(c.Stop))
	for _, stop := range c.Stop {
		b = appendText(b, stop)
	}
	b = appendText(b, c.ReasoningEffort)
	flags := len(b)
	b = append(b, 0)
	if c.Temperature != nil {
		b[flags] |= hasTemperature
		b = appendFloat(b, *c.Temperature)
	}
	if c.TopP != nil {
		b[flags] |= hasTopP
		b = appendFloat(b, *c.TopP)
	}
	if c.Seed != nil {
		b[flags] |= hasSeed
		b = binary.AppendVarint(b, *c.Seed)
	}
	return b
}

// ReadModel decodes a record of AppendModel into c. It returns ErrMalformed if the record is cut short.
func ReadModel[T string | []byte](record T, c *conversation.ModelConfig) error {
	r := reader[T]{rest: record}
	r.model(c)
	return r.err()
}

func (r *reader[T]) model(c *conversation.ModelConfig) {
	c.Model, c.MaxOutputTokens = r.text(), r.int()
	for n := r.int(); n > 0 && !r.bad; n-- {
		c.Stop = append(c.Stop, r.text())
	}
	c.ReasoningEffort = r.text()
	flags := r.byte()
	if flags&hasTemperature != 0 {
		c.Temperature = r.float()
	}
	if flags&hasTopP != 0 {
		c.TopP = r.float()
	}
	if flags&hasSeed != 0 {
		seed := r.int64()
		c.Seed = &seed
	}
}

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

func (r *reader[T]) float() *float64 {
	f := math.Float64frombits(r.bits())
	return &f
}

// bits reads 8 bytes, little endian.
func (r *reader[T]) bits() (bits uint64) {
	for shift := 0; shift < 64; shift += 8 {
		bits |= uint64(r.byte()) << shift
	}
	return bits
}
