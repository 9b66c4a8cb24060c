// Package record defines the format of stored records. Both stores keep messages, indexed messages and summaries in this format.
// The embedded store also keeps sessions, live turns and requests in this format. The Redis store keeps sessions, live turns and
// requests as hashes and texts instead, because its scripts change single fields. Only the configuration of a session's model is a
// record there too.
//
// # Layout
//
// A record consists of fields in a fixed order, without tags:
//
//   - a text or bytes: the length as a varint, then the bytes;
//   - a number: a zigzag varint;
//   - a priority, a temperature or another fraction: a float64 in 8 bytes, little endian;
//   - a digest: its 32 bytes;
//   - a flag byte, in messages and sessions: most of its bits mark the optional parts that follow.
//
// A record lacks its own id. The record of a message also lacks the creation time, because Redis' scripts set it. The record of a
// summary lacks the id of its last message, because Redis' scripts compare it. The stores keep these values in the key or before
// the record.
//
// A turn reads all messages that fit its window, so decoding must be cheap. Read functions take a string or bytes. Texts read
// from a string share the memory of the string. This suits Redis, because its client returns strings. Texts read from bytes are
// copied. This suits the embedded store, because its bytes are valid only within a transaction. With JSON, decoding took most of
// a turn's time.
//
// # Changing the format
//
// During a rolling restart, nodes of two versions read each other's messages. So a field is never moved, removed or given another
// meaning. A new field goes to the end of the record, under a new bit of the flag byte. A reader of messages ignores the bytes
// after the parts that it knows. The last free bit of a message, 0x80, is reserved: it will mean that a second flag byte
// follows. Until then, the part
// hasFigures takes further numbers. Messages and
// indexed messages begin with [Version]; a reader refuses another first byte, so that it never returns a wrong value.
//
// All records expire with their session, at most 24 hours after they were written. So the reader of an old format may be removed
// one release after its last writer, unless users may skip a release.
//
// # Why this format
//
// The Redis store has written this layout since its first version, and the embedded store shares it. So nodes can be upgraded one
// by one: a node of the previous version reads every message that this version writes. With a different layout, older nodes would
// fail on each session that a newer node has changed. That would break the promise that a deploy fails no request.
//
// Protobuf generated with vtprotobuf was measured and dropped. A reply of 200 tokens with usage and context took 9 allocations to
// decode from bytes (5 here), and 5 from a string (2 here). Protobuf makes each nested message an object of its own, which is
// then copied into the domain's type. It saved 16 of 1,108 bytes, and added 5,300 generated lines beside a conversion that is as
// long as message.go and session.go. Tagged fields written by hand with protowire save the same bytes, and have the same problem
// with older nodes.
package record
