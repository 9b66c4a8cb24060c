package embedded

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
)

// Some values have fields outside the record: the creation time of a message, the terms and the vector of an indexed message.
func TestValues_FieldsOutsideRecord_RoundTrip(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	at := ref{somebody, newSession(t, s).ID}
	m := conversation.Message{ID: "msg_0123456789ABCDEF", SessionID: at.session, CreatedAt: 1_700_000_000_000, Content: "hello"}
	x := conversation.Indexed{ID: m.ID, Terms: window.TermsOf("a lighthouse"), Vector: window.Vector{0, 1, 255}}
	summary := conversation.Summary{Last: m.ID, Text: "so far", Count: 7}
	must(t, s.submit(t.Context(), func(w *writing) error {
		return errors.Join(w.putMessage(at, &m, 1), w.putIndexed(messageKey(at, m.ID), &x), w.putSummary(at, &summary))
	}))
	must(t, s.db.View(func(tx *bbolt.Tx) error {
		r := &reading{bolt: tx}
		gotMessage, err1 := r.message(at, m.ID)
		gotIndex, err2 := r.indexed(at, 2)
		gotSummary, err3 := r.summary(at)
		if diff := cmp.Diff([]any{m, []conversation.Indexed{x}, summary}, []any{gotMessage, gotIndex, gotSummary}); diff != "" {
			t.Errorf("the decoded values (-want +got):\n%s", diff)
		}
		return errors.Join(err1, err2, err3)
	}))
}

// The test decodes random bytes as values of the present format and of schema 2.
func TestValues_RandomBytes_NoPanic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		garbage := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		for _, value := range [][]byte{garbage, append([]byte{valueFormat}, garbage...)} {
			_, _ = readMessage(value, "", "")
			_, _ = readSession(value, "")
			_, _, _ = readLifetime(value)
			_, _ = readIndexed(value, "", new(record.IndexedReader[[]byte]))
			_, _ = readSummary(value)
			_, _ = readLiveTurn(value)
			_, _ = readRequest(value)
		}
		_, _, _ = cutOwner(garbage)
		_, _, _ = cutExpiry(garbage)
	})
}
