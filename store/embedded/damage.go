package embedded

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"parley/auth"
	"parley/conversation"
)

// DamageError reports that a part of the store's file is damaged. It wraps conversation.ErrStoreDamaged. It contains no message
// text, no idempotency key, no user id and no hash of a secret.
type DamageError struct {
	File   string
	Page   int64  // the number of the damaged page, or noPage
	Bucket string // "" if unknown
	Keys   string // describes the keys of the damaged or lost records: account, mode and ids; "" if unknown
	Fault  string // what is wrong
}

const noPage = -1

// damageIn returns a damage in a bucket, on an unknown page. bucket and keys may be "".
func damageIn(bucket, keys, fault string) *DamageError {
	return &DamageError{Page: noPage, Bucket: bucket, Keys: keys, Fault: fault}
}

func (e *DamageError) Error() string {
	const wayOut = "stop the server, run \"parley store check %s\", and restore a backup"
	return fmt.Sprintf("the store %s is damaged: %s; "+wayOut, e.File, e.Place(), e.File)
}

// Unwrap returns conversation.ErrStoreDamaged.
func (e *DamageError) Unwrap() error { return conversation.ErrStoreDamaged }

// Place describes the damage, without the name of the file and without advice.
func (e *DamageError) Place() string {
	var parts []string
	if e.Page != noPage {
		parts = append(parts, fmt.Sprintf("page %d", e.Page))
	}
	if e.Bucket != "" {
		parts = append(parts, "bucket "+e.Bucket)
	}
	if e.Keys != "" {
		parts = append(parts, e.Keys)
	}
	place := strings.Join(parts, ", ")
	if place != "" {
		place += ": "
	}
	return place + e.Fault
}

// damageOf returns the damage that a recovered panic reveals; nil if the panic has another cause, such as a bug of this
// package. It must be called by the deferred function that recovers. These panics reveal damage: a *DamageError, a
// memory fault at an address of firstAddress or more, and any panic in bbolt.
func damageOf(p any) *DamageError {
	if d, ok := p.(*DamageError); ok {
		return d
	}
	d := damageIn("", "", panicText(p))
	if fault, ok := p.(interface{ Addr() uintptr }); ok && fault.Addr() >= firstAddress {
		return d
	}
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	for panicking := false; ; {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicking = true
		case panicking && strings.HasPrefix(frame.Function, "go.etcd.io/bbolt"):
			return d
		case panicking && strings.HasPrefix(frame.Function, "parley/"), !more:
			return nil
		}
	}
}

// A memory fault below firstAddress comes from a nil pointer. The Go runtime uses the same limit.
const firstAddress = 4096

// panicText returns the text of a panic without the values that bbolt puts in brackets, because these may contain keys.
func panicText(p any) string {
	text, _, _ := strings.Cut(fmt.Sprint(p), "(")
	return strings.TrimSpace(text)
}

// catch is deferred by functions that use bbolt. If bbolt has panicked or the memory map has faulted, catch sets *err to the
// *DamageError. It continues any other panic. The goroutine must have called SetPanicOnFault.
func (s *Store) catch(err *error) {
	p := recover()
	if p == nil {
		return
	}
	d := damageOf(p)
	if d == nil {
		panic(p)
	}
	*err = s.damaged(d, p != any(d))
}

// damaged sets the fault damaged, and returns the error for callers. unexpected means that bbolt has panicked. damaged
// logs the stack of the first such panic.
func (s *Store) damaged(d *DamageError, unexpected bool) error {
	if d.File == "" {
		named := *d
		named.File = s.path
		d = &named
	}
	if unexpected && s.health.err(damaged) == nil {
		s.log.Error("bbolt panicked at a damage", "stack", string(debug.Stack()))
	}
	return s.health.set(damaged, d)
}

// keyText describes a key of a bucket for an error: the account, the mode, and the ids of session and message. It returns "" for
// a key that is not well-formed, because a damaged key may contain any bytes of the file.
func keyText(bucket string, key []byte) string {
	switch bucket {
	case expiryBucket, forgetBucket:
		if len(key) < timeLength {
			return ""
		}
		key = key[timeLength:]
	case accountsBucket, daysBucket:
		if bucket == accountsBucket && len(key) > 2 {
			key = key[2:]
		}
		if auth.CheckAccount(string(key)) != nil {
			return ""
		}
		return "account " + string(key)
	case secretsBucket, metaBucket, "":
		return ""
	}
	owner, rest, ok := cutOwner(key)
	if !ok || auth.CheckAccount(owner.Account) != nil || owner.Mode != conversation.Live && owner.Mode != conversation.Test {
		return ""
	}
	text := fmt.Sprintf("account %s (%s)", owner.Account, owner.Mode)
	if bucket == usageBucket || bucket == storedBucket {
		if len(rest) == hourLength {
			text += fmt.Sprintf(" hour %d", binary.BigEndian.Uint64(rest))
		}
		return text
	}
	for _, prefix := range []string{conversation.SessionPrefix, conversation.MessagePrefix} {
		n := len(prefix) + idSuffix
		if len(rest) < n || !conversation.ValidID(prefix, string(rest[:n])) {
			break
		}
		text += " " + string(rest[:n])
		rest = rest[n:]
	}
	return text
}

// idSuffix is the number of characters after the prefix of an id (conversation.ValidID).
const idSuffix = 16

// rangeText describes the keys from one key up to another. If from is nil, they begin at the beginning of the bucket.
// If to is nil, they end at its end.
func rangeText(bucket string, from, to []byte) string {
	describe := func(key []byte, end string) string {
		if key == nil {
			return end
		}
		if text := keyText(bucket, key); text != "" {
			return text
		}
		return "a key without ids"
	}
	return "from " + describe(from, "the beginning") + " to " + describe(to, "the end")
}
