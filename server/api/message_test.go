package api

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"parley/conversation"
)

func TestCheckMessage_ErrorNamesField(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, test := range map[string]struct {
		request MessageRequest
		field   string // "" if the message is valid
	}{
		"content alone":                {MessageRequest{Content: text("hello")}, ""},
		"no content":                   {MessageRequest{}, "content"},
		"only spaces":                  {MessageRequest{Content: text(" \n\t")}, "content"},
		"10,000 characters of 3 bytes": {MessageRequest{Content: text(strings.Repeat("日", maxContent))}, ""},
		"10,001 characters":            {MessageRequest{Content: text(strings.Repeat("a", maxContent+1))}, "content"},
		"role system":                  {MessageRequest{Content: text("a"), Role: text("system")}, ""},
		"role assistant":               {MessageRequest{Content: text("a"), Role: text("assistant")}, "role"},
		"onBusy reject":                {MessageRequest{Content: text("a"), OnBusy: text("reject")}, ""},
		"onBusy unknown":               {MessageRequest{Content: text("a"), OnBusy: text("wait")}, "onBusy"},
		"metadata a list":              {MessageRequest{Content: text("a"), Metadata: json.RawMessage(`[]`)}, "metadata"},
		"metadata too large":           {MessageRequest{Content: text("a"), Metadata: json.RawMessage(`{"a":"` + strings.Repeat("x", maxMetadata) + `"}`)}, "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := CheckMessage("session_1", test.request)
			e, isError := errors.AsType[*Error](err)
			switch {
			case test.field == "" && (err != nil || m.Content != *test.request.Content || m.SessionID != "session_1"):
				t.Errorf("got %+v, %v, want a valid message", m, err)
			case test.field != "" && (!isError || e.Field != test.field):
				t.Errorf("got %v, want an error that names the field %s", err, test.field)
			}
		})
	}
	if m, err := CheckMessage("s", MessageRequest{Content: text("a")}); err != nil || m.Role != conversation.User || m.OnBusy != conversation.Enqueue {
		t.Errorf("the defaults are %+v, %v", m, err)
	}
}

func TestSendIdempotency_IgnoresOnBusy(t *testing.T) {
	key := "key 1"
	if _, err := SendIdempotency("Idempotency-Key", &key, conversation.NewMessage{}); err == nil {
		t.Error("a key with a space is accepted")
	}
	key = "key-1"
	a, errA := SendIdempotency("Idempotency-Key", &key, conversation.NewMessage{Content: "x", OnBusy: conversation.Reject})
	b, errB := SendIdempotency("idempotencyKey", &key, conversation.NewMessage{Content: "x", OnBusy: conversation.Interrupt})
	c, errC := SendIdempotency("idempotencyKey", &key, conversation.NewMessage{Content: "y"})
	if errA != nil || errB != nil || errC != nil || a.Digest != b.Digest || a.Digest == c.Digest {
		t.Errorf("OnBusy changes the digest, or the content does not: %v %v %v", errA, errB, errC)
	}
	if none, err := SendIdempotency("idempotencyKey", nil, conversation.NewMessage{}); none != nil || err != nil {
		t.Errorf("without a key: got %v, %v, want nil", none, err)
	}
}
