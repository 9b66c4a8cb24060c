package embedded

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	"parley/auth"
	"parley/conversation"
)

// auditPurgedAtOnce is the maximum number of old entries that one call of audit removes. A call adds only one entry, so old
// entries do not pile up.
const auditPurgedAtOnce = 10

// auditValue is an audit entry in the file. Number rises by 1 with each entry of the owner. So audit knows which entries exceed
// auth.MaxAuditEntries without counting the entries.
type auditValue struct {
	auth.AuditEntry
	Number int64 `json:"number"`
}

// Audit implements auth.Store.
func (s *Store) Audit(ctx context.Context, owner auth.Owner, query auth.AuditQuery) (page auth.AuditPage, err error) {
	err = s.view(ctx, func(r *reading) error {
		before := ""
		if !query.Before.IsZero() {
			before = string(appendTime(nil, conversation.TimeOf(query.Before)))
		}
		oldest := r.now.Add(-auth.AuditLifetime).Go()
		entries := r.auditSpan(owner)
		for at, value, ok := entries.before(before); ok; at, value, ok = entries.prev() {
			entry, err := readAudit(at, value)
			if err != nil {
				return err
			}
			if !entry.At.After(oldest) {
				break
			}
			if len(page.Entries) == query.Limit {
				page.Next = page.Entries[query.Limit-1].At
				break
			}
			page.Entries = append(page.Entries, entry.AuditEntry)
		}
		return nil
	})
	return page, err
}

func (r *reading) auditSpan(owner auth.Owner) span {
	return r.span(auditBucket, ownerKey(ownerOf(owner)))
}

func auditKey(owner auth.Owner, at time.Time) []byte {
	return appendTime(ownerKey(ownerOf(owner)), conversation.TimeOf(at))
}

func readAudit(at, value []byte) (v auditValue, err error) {
	if len(at) != timeLength || json.Unmarshal(value, &v) != nil {
		return v, errRecord
	}
	v.At = conversation.Time(binary.BigEndian.Uint64(at)).Go()
	return v, nil
}

// audit adds an entry to the audit log of an owner, and removes up to auditPurgedAtOnce entries that are too old or exceed
// auth.MaxAuditEntries.
func (w *writing) audit(owner auth.Owner, entry auth.AuditEntry) error {
	v := auditValue{entry, 1}
	v.At = w.now.Go()
	if at, value, ok := w.auditSpan(owner).before(""); ok {
		newest, err := readAudit(at, value)
		if err != nil {
			return err
		}
		v.Number = newest.Number + 1
		if !v.At.After(newest.At) {
			v.At = (conversation.TimeOf(newest.At) + 1).Go()
		}
	}
	if err := w.purgeAudit(owner, v.Number-auth.MaxAuditEntries); err != nil {
		return err
	}
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.put(auditBucket, auditKey(owner, v.At), value)
}

// purgeAudit removes up to auditPurgedAtOnce entries that are older than auth.AuditLifetime, or have a number of at most last.
func (w *writing) purgeAudit(owner auth.Owner, last int64) error {
	var gone [][]byte
	oldest := w.now.Add(-auth.AuditLifetime).Go()
	entries := w.auditSpan(owner)
	for at, value, ok := entries.from(""); ok && len(gone) < auditPurgedAtOnce; at, value, ok = entries.next() {
		entry, err := readAudit(at, value)
		if err != nil {
			return err
		}
		if entry.Number > last && entry.At.After(oldest) {
			break
		}
		gone = append(gone, auditKey(owner, entry.At))
	}
	for _, key := range gone {
		if err := w.delete(auditBucket, key); err != nil {
			return err
		}
	}
	return nil
}
