package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"parley/auth"
)

func TestSend_BodyValidation(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	p.send(session, "hello")
	path := "/v1/sessions/{id}/messages"
	bad := refusals{}
	for name, test := range map[string]struct{ body, field string }{
		"content_missing":      {`{}`, "content"},
		"content_empty":        {`{"content":""}`, "content"},
		"content_null":         {`{"content":null}`, "content"},
		"content_a_number":     {`{"content":1}`, "content"},
		"content_too_long":     {`{"content":"` + strings.Repeat("é", 10_001) + `"}`, "content"},
		"content_nul":          {`{"content":"a\u0000b"}`, "content"},
		"content_invalid_utf8": {"{\"content\":\"\xc3\"}", "content"},
		"content_surrogate":    {`{"content":"\udc00"}`, "content"},
		"content_twice":        {`{"content":"a","content":"b"}`, "content"},
		"content_capitalised":  {`{"content":"a","Content":"b"}`, "Content"},
		"role_assistant":       {`{"content":"a","role":"assistant"}`, "role"},
		"role_capitalised":     {`{"content":"a","role":"User"}`, "role"},
		"role_empty":           {`{"content":"a","role":""}`, "role"},
		"streaming_a_string":   {`{"content":"a","streaming":"true"}`, "streaming"},
		"metadata_a_string":    {`{"content":"a","metadata":"x"}`, "metadata"},
		"metadata_over_16_KiB": {`{"content":"a","metadata":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`, "metadata"},
		"on_busy_unknown":      {`{"content":"a","onBusy":"wait"}`, "onBusy"},
		"unknown_field":        {`{"content":"a","stream":true}`, "stream"},
		"trailing_data":        {`{"content":"a"} x`, ""},
		"empty_body":           {``, "content"},
	} {
		bad["400_"+name] = refused{"POST", path, test.body, nil, 400, "validation_error", test.field}
	}
	bad["413_over_1_MiB"] = refused{"POST", path, `{"content":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, "payload_too_large", ""}
	bad["415_plain_text"] = refused{"POST", path, `{"content":"a"}`, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type", ""}
	bad["404_unknown_session"] = refused{"POST", "/v1/sessions/" + noSession + "/messages", `{"content":"a"}`, nil, 404, "session_not_found", ""}
	bad.run(t, p, session)

	t.Run("200_ten_thousand_characters_of_four_bytes", func(t *testing.T) {
		large := p.must("POST", "/v1/sessions", map[string]any{"userId": user, "contextConfig": map[string]any{"maxTokens": 100_000}})
		content := strings.Repeat("🙂", 10_000)
		if r := p.send(large["sessionId"].(string), content); r["content"] != "You said: "+content {
			t.Errorf("the reply has %d bytes", len(r["content"].(string)))
		}
	})
	t.Run("200_system_message_with_metadata", func(t *testing.T) {
		r := p.must("POST", "/v1/sessions/"+session+"/messages", `{"content":"Be \u0001 brief <&>","role":"system","metadata":{"n":1.50}}`)
		h := p.history(session)
		asked := h[len(h)-2]
		if r["content"] != "You said: Be \x01 brief <&>" || asked.Role != "system" || asked.Metadata["n"] != 1.5 || asked.Status != "completed" {
			t.Errorf("the reply is %v, to %+v", r, asked)
		}
	})
}

func TestHistory_EachQuery_ExpectedPage(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	path := "/v1/sessions/" + session + "/messages"
	t.Run("200_empty", func(t *testing.T) {
		a := p.call("GET", path, nil)
		if a.status != 200 || !strings.HasPrefix(a.raw, `{"data":[],"pagination":{"hasMore":false,"nextCursor":null},"stream":{"cursor":"`) {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
	for i := range 30 {
		p.send(session, fmt.Sprint("message ", i))
	}
	var ids []string // oldest first
	for i, m := range p.history(session) {
		ids = append(ids, m.MessageID)
		if want := []string{"user", "assistant"}[i%2]; m.Role != want || m.Tokens == 0 || m.Status != "completed" {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	if len(ids) != 60 || !slices.IsSorted(ids) {
		t.Fatalf("the ids do not ascend: %v", ids)
	}
	check := func(name, query string, want []string, more, newestPage bool) {
		t.Run(name, func(t *testing.T) {
			a := p.must("GET", path+query, nil)
			var got []string
			for _, m := range a["data"].([]any) {
				got = append(got, m.(map[string]any)["messageId"].(string))
			}
			pagination := a["pagination"].(map[string]any)
			next, _ := pagination["nextCursor"].(string)
			if !slices.Equal(got, want) || pagination["hasMore"] != more || more && next != got[len(got)-1] || !more && next != "" {
				t.Errorf("got %d messages %v, %v", len(got), got, pagination)
			}
			if (a["stream"] != nil) != newestPage {
				t.Errorf("stream is %v", a["stream"])
			}
		})
	}
	check("200_default_is_fifty_newest_first", "", newest[:50], true, true)
	check("200_next_page", "?cursor="+newest[49], newest[50:], false, false)
	check("200_ascending", "?order=asc", ids[:50], true, false)
	check("200_ascending_to_the_newest", "?order=asc&cursor="+ids[49], ids[50:], false, true)
	check("200_order_desc", "?order=desc&limit=1", newest[:1], true, true)
	check("200_limit_equals_total", "?limit=60", newest, false, true)
	check("200_limit_over_total", "?limit=100&order=asc", ids, false, true)
	check("200_after_the_last", "?order=asc&cursor="+ids[59], nil, false, true)
	check("200_before_the_first", "?cursor="+ids[0], nil, false, false)

	t.Run("200_fields_of_a_message", func(t *testing.T) {
		data := p.must("GET", path+"?limit=2", nil)["data"].([]any)
		reply, asked := data[0].(map[string]any), data[1].(map[string]any)
		for _, name := range []string{"messageId", "sessionId", "role", "content", "tokens", "createdAt", "status"} {
			if reply[name] == nil || asked[name] == nil {
				t.Errorf("%s is missing", name)
			}
		}
		if len(asked) != 7 || reply["usage"] == nil || reply["finishReason"] != "stop" || reply["context"] == nil || len(reply) != 10 {
			t.Errorf("got %v and %v", asked, reply)
		}
	})
	bad := refusals{}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=all": "limit", "order=": "order", "order=ASC": "order", "order=newest": "order",
		"cursor=": "cursor", "cursor=" + noSession: "cursor", "cursor=msg_1": "cursor",
	} {
		bad["400_"+query] = refused{"GET", path + "?" + query, nil, nil, 400, "validation_error", field}
	}
	bad.run(t, p, session)
}

func TestGetAndCancelMessage_EachCase_ExpectedStatus(t *testing.T) {
	p := start(t, echo)
	session, other := p.session(), p.session()
	reply := p.send(session, "hello")["messageId"].(string)
	asked := p.history(session)[0].MessageID
	path := "/v1/sessions/{id}/messages/"
	bad := refusals{}
	for name, id := range map[string]string{"unknown": noMessage, "malformed": "msg_0123456789abcde", "session_id": noSession} {
		bad["404_"+name] = refused{"GET", path + id, nil, nil, 404, "message_not_found", ""}
		bad["404_"+name+"_cancel"] = refused{"POST", path + id + "/cancel", nil, nil, 404, "message_not_found", ""}
		bad["404_"+name+"_stream"] = refused{"GET", path + id + "/stream", nil, nil, 404, "message_not_found", ""}
	}
	bad["404_message_of_another_session"] = refused{"GET", "/v1/sessions/" + other + "/messages/" + reply, nil, nil, 404, "message_not_found", ""}
	bad["400_cancel_unknown_field"] = refused{"POST", path + reply + "/cancel", `{"why":1}`, nil, 400, "validation_error", "why"}
	bad["415_cancel_plain_text"] = refused{"POST", path + reply + "/cancel", `x`, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type", ""}
	bad.run(t, p, session)
	for name, id := range map[string]string{"200_reply": reply, "200_user_message": asked} {
		t.Run(name, func(t *testing.T) {
			m := p.must("GET", "/v1/sessions/"+session+"/messages/"+id, nil)
			if m["messageId"] != id || m["status"] != "completed" || m["stream"].(map[string]any)["cursor"] == "" {
				t.Errorf("got %v", m)
			}
		})
		t.Run(name+"_cancel_changes_nothing", func(t *testing.T) {
			before := p.snapshot(session)
			m := p.must("POST", "/v1/sessions/"+session+"/messages/"+id+"/cancel", nil)
			if m["messageId"] != id || m["status"] != "completed" || p.snapshot(session) != before {
				t.Errorf("got %v", m)
			}
		})
	}
}

func TestClear_Repeated_ClearsNothing(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	path := "/v1/sessions/" + session + "/messages"
	reply := p.send(session, "hello")["messageId"].(string)
	used := p.must("GET", "/v1/sessions/"+session, nil)["tokenUsage"]
	if c := p.must("DELETE", path, nil); c["cleared"] != 2.0 || c["sessionId"] != session || len(c) != 2 {
		t.Errorf("cleared: %v", c)
	}
	s := p.must("GET", "/v1/sessions/"+session, nil)
	if s["messageCount"] != 0.0 || fmt.Sprint(s["tokenUsage"]) != fmt.Sprint(used) || len(p.history(session)) != 0 {
		t.Errorf("after the clear, the session is %v", s)
	}
	checkError(t, p.call("GET", path+"/"+reply, nil), 404, "message_not_found", "")
	if c := p.must("DELETE", path, nil); c["cleared"] != 0.0 {
		t.Errorf("cleared again: %v", c)
	}
	if next := p.send(session, "again")["messageId"].(string); next <= reply {
		t.Errorf("%s does not sort after %s", next, reply)
	}
	checkError(t, p.call("DELETE", "/v1/sessions/"+noSession+"/messages", nil), 404, "session_not_found", "")
}

func TestIssueTicket_EachBody_ExpectedStatus(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	for name, body := range map[string]any{"200_no_body": nil, "200_any_session": "{}", "200_one_session": map[string]any{"sessionId": session}} {
		t.Run(name, func(t *testing.T) {
			a := p.must("POST", "/v1/stream/tickets", body)
			if a["ticket"] == "" || !timestamp.MatchString(fmt.Sprint(a["expiresAt"])) || len(a) != 2 {
				t.Errorf("got %v", a)
			}
		})
	}
	refusals{
		"400_session_malformed": {"POST", "/v1/stream/tickets", `{"sessionId":"x"}`, nil, 400, "validation_error", "sessionId"},
		"400_unknown_field":     {"POST", "/v1/stream/tickets", `{"session":"x"}`, nil, 400, "validation_error", "session"},
		"404_unknown_session":   {"POST", "/v1/stream/tickets", `{"sessionId":"` + noSession + `"}`, nil, 404, "session_not_found", ""},
		"404_foreign_session": {"POST", "/v1/stream/tickets", `{"sessionId":"` + session + `"}`,
			[]string{"Authorization", "Bearer " + p.key("other", auth.Admin)}, 404, "session_not_found", ""},
	}.run(t, p, session)
}
