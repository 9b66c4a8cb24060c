package api

import (
	"encoding/json"
	"reflect"
	"testing"
)

// The first 15 cases are the test cases of RFC 7396, appendix A.
func TestMergePatch_RFC7396_Results(t *testing.T) {
	for _, test := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{``, `{"a":{"b":null},"c":[null]}`, `{"a":{},"c":[null]}`},
		{` {"n":12345678901234567890.10}`, `{"<&>":"<&>"}`, `{"<&>":"<&>","n":12345678901234567890.10}`},
	} {
		got := MergePatch([]byte(test.target), []byte(test.patch))
		if test.target != "" && test.target[0] == ' ' { // numbers and characters keep their text
			if string(got) != test.want {
				t.Errorf("%s patched by %s is %s, want %s", test.target, test.patch, got, test.want)
			}
			continue
		}
		var value, want any
		if err := json.Unmarshal(got, &value); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(test.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(value, want) {
			t.Errorf("%s patched by %s is %s, want %s", test.target, test.patch, got, test.want)
		}
	}
}

func TestDecodePatch_Optional_NullOnlyInPatch(t *testing.T) {
	type body struct {
		Text   Optional[string]          `json:"text"`
		Any    Optional[json.RawMessage] `json:"any"`
		Config Optional[struct {
			Limit Optional[int]      `json:"limit"`
			List  Optional[[]string] `json:"list"`
		}] `json:"config"`
	}
	for _, test := range []struct{ body, field, inPatch string }{ // field of the error of Decode, and of DecodePatch; "-" for none
		{`{}`, "-", "-"},
		{`{"text":"a","any":[null],"config":{"limit":1,"list":["a"]}}`, "-", "-"},
		{`{"text":null}`, "text", "-"},
		{`{"any":null}`, "any", "-"},
		{`{"config":null}`, "config", "-"},
		{`{"config":{"limit":null,"list":null}}`, "config.limit", "-"},
		{`{"config":{"list":[null]}}`, "config.list.0", "config.list.0"},
		{`{"config":{"limit":"1"}}`, "config.limit", "config.limit"},
		{`{"config":{"other":null}}`, "config.other", "config.other"},
		{`{"text":"a","text":null}`, "text", "text"},
	} {
		for i, decode := range []func([]byte, any) error{Decode, DecodePatch} {
			var got body
			field, want := "-", []string{test.field, test.inPatch}[i]
			if err := decode([]byte(test.body), &got); err != nil {
				field = err.(*Error).Field
			}
			if field != want {
				t.Errorf("%s: error for %q, want %q", test.body, field, want)
			}
		}
	}
	var got body
	if err := DecodePatch([]byte(`{"text":null,"config":{"limit":0}}`), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Text.Null || got.Text.Value != nil || got.Any.Given() || *got.Config.Value.Limit.Value != 0 || got.Config.Value.List.Given() {
		t.Errorf("decoded %+v", got)
	}
}
