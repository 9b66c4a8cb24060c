// Package record is the format in which both stores keep messages, and in which the embedded store keeps sessions and what
// belongs to them. Redis keeps sessions as hashes instead, because its scripts change their fields one by one.
//
// # Layout
//
// A record is its fields in a fixed order, without tags:
//
//   - a text or bytes: the length as a varint, then the bytes;
//   - a number: a zigzag varint;
//   - a flag byte says which optional parts follow, in the order of its bits.
//
// What the store's key says is not repeated: ids, and for a summary its last message. The creation time of a message is not in
// its record either, because Redis' scripts stamp it; each store keeps it in front of the record.
//
// A turn reads as many messages as its window holds, so decoding must be cheap. Read functions take a string or bytes. Texts read
// from a string share its memory, which suits Redis, whose client returns strings. Texts read from bytes are copied, which suits
// the embedded store, whose bytes are valid only within a transaction. As JSON, decoding took most of a turn's time.
//
// # Changing the format
//
// During a rolling restart, nodes of two versions read each other's messages. So a field is never moved, removed or given another
// meaning, and a new one goes to the end of the record, under a new bit of the flag byte. Readers ignore what follows the parts
// that they know. The last free bit, 0x80, is to say that a second flag byte follows. A first byte other than [Version] is an
// error, and never a wrong value.
//
// Everything here expires with its session, at most 24 hours after it was written. So a reader for an old format may be removed
// one release after the last writer of it, if nobody has to skip a release.
//
// # Why this format
//
// It is the layout that the Redis store has written since its first version, extended to the embedded store, so that a cluster
// can be upgraded node by node: a node of the version before reads every message that this one writes. A different layout for
// Redis would make the older nodes fail on each session that a newer one has touched, which breaks the promise that a deploy
// fails no request.
//
// Protobuf generated with vtprotobuf was measured and dropped. A reply of 200 tokens with usage and context took 9 allocations to
// decode from bytes, against 5 here, and 5 against 2 from a string, because each nested message is an object of its own that is
// then copied into the domain's type. It saved 16 of 1,108 bytes, and added 5,300 generated lines beside a conversion that is as
// long as message.go and session.go. Tagged fields written by hand with protowire save the same bytes, and have the same problem
// with older nodes.
package record
