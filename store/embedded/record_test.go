package embedded

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"parley/conversation"
	"parley/conversation/window"
)

// fill sets each field of a struct to something that is not zero and not what another has.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(string(rune('a'+*n%26)) + "äß")
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) * 1_000_003)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[window.Terms]() {
			v.Set(reflect.ValueOf(window.TermsOf("words of a text, and of another text")))
			return
		}
		v.Set(reflect.ValueOf(json.RawMessage(`{"n":1.50, "s":"<>"}`)).Convert(v.Type()))
	default:
		panic("a field of a kind that fill does not know: " + v.Type().String())
	}
}

// TestRecordsHoldEveryField fails for a field that was added to a struct and not to its record.
func TestRecordsHoldEveryField(t *testing.T) {
	n := 0
	var message, emptyMessage conversation.Message
	fill(reflect.ValueOf(&message).Elem(), &n)
	emptyMessage.Usage, emptyMessage.Context, emptyMessage.Error =
		new(conversation.Usage), new(conversation.ContextReport), new(conversation.ReplyError)
	for _, want := range []conversation.Message{message, {}, emptyMessage} {
		var r record
		r.message(&want)
		want.Terms = nil // they are the index's
		got, err := readMessage(r, want.SessionID, want.ID)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a message (-want +got):\n%s", diff)
		}
	}
	var session conversation.Session
	fill(reflect.ValueOf(&session).Elem(), &n)
	for _, want := range []conversation.Session{session, {}} {
		var r record
		r.session(&want)
		got, err := readSession(r, want.ID)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a session (-want +got):\n%s", diff)
		}
	}
	var indexed conversation.Indexed
	fill(reflect.ValueOf(&indexed).Elem(), &n)
	for _, want := range []conversation.Indexed{indexed, {}} {
		var r record
		r.indexed(&want)
		got, err := readIndexed(r, want.ID)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("an indexed message (-want +got):\n%s", diff)
		}
	}
	var summary conversation.Summary
	fill(reflect.ValueOf(&summary).Elem(), &n)
	var s record
	s.summary(&summary)
	if got, err := readSummary(s); err != nil || got != summary {
		t.Errorf("a summary: %+v, %v, want %+v", got, err, summary)
	}
	var live liveRecord
	fill(reflect.ValueOf(&live).Elem(), &n)
	var r record
	r.live(live)
	if got, err := readLive(r); err != nil || got != live {
		t.Errorf("a live turn: %+v, %v, want %+v", got, err, live)
	}
}

func TestARecordOfALaterProgramIsReadAsFarAsItIsKnown(t *testing.T) {
	var r record
	r.text(99, "what is this?")
	r.number(numbers+99, -7)
	want := conversation.Message{Content: "hello"}
	r.message(&want)
	got, err := readMessage(r, "", "")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestNoRecordPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		garbage := rapid.SliceOf(rapid.Byte()).Draw(t, "record")
		_, _ = readMessage(garbage, "", "")
		_, _ = readSession(garbage, "")
		_, _ = readLive(garbage)
		_, _, _ = cutOwner(garbage)
		_, _, _ = cutExpiry(garbage)
	})
}
