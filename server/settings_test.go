package server_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"parley/conversation/service"
	"parley/server"
	"parley/stream"
	"parley/stream/models"
)

// twoModels makes the server have the model "scripted", which is the default, and the model "other".
func twoModels(model, other stream.Model) func(*server.Options, *service.Options) {
	return func(_ *server.Options, c *service.Options) {
		c.Models = models.Of(models.New("scripted", model, 0), models.New("other", other, 0))
	}
}

// wrongSettings holds invalid settings with the field that the error names. They are invalid in POST and in PATCH.
var wrongSettings = map[string]struct{ settings, field string }{
	"instructions_empty":          {`"instructions":""`, "instructions"},
	"instructions_blank":          {`"instructions":" \n"`, "instructions"},
	"instructions_a_number":       {`"instructions":1`, "instructions"},
	"instructions_over_10000":     {`"instructions":"` + strings.Repeat("ä", 10_001) + `"`, "instructions"},
	"instructions_fill_window":    {`"instructions":"` + strings.Repeat("four", 50) + `","contextConfig":{"maxTokens":64}`, "instructions"},
	"output_zero":                 {`"modelConfig":{"maxOutputTokens":0}`, "modelConfig.maxOutputTokens"},
	"output_over_a_million":       {`"modelConfig":{"maxOutputTokens":1000001}`, "modelConfig.maxOutputTokens"},
	"output_a_fraction":           {`"modelConfig":{"maxOutputTokens":1.5}`, "modelConfig.maxOutputTokens"},
	"model_unknown":               {`"modelConfig":{"model":"gpt"}`, "modelConfig.model"},
	"model_empty":                 {`"modelConfig":{"model":""}`, "modelConfig.model"},
	"temperature_negative":        {`"modelConfig":{"temperature":-0.1}`, "modelConfig.temperature"},
	"temperature_over_2":          {`"modelConfig":{"temperature":2.1}`, "modelConfig.temperature"},
	"top_p_zero":                  {`"modelConfig":{"topP":0}`, "modelConfig.topP"},
	"top_p_over_1":                {`"modelConfig":{"topP":1.1}`, "modelConfig.topP"},
	"stop_empty":                  {`"modelConfig":{"stop":[]}`, "modelConfig.stop"},
	"stop_of_five":                {`"modelConfig":{"stop":["a","b","c","d","e"]}`, "modelConfig.stop"},
	"stop_with_empty_string":      {`"modelConfig":{"stop":["a",""]}`, "modelConfig.stop.1"},
	"stop_of_257_characters":      {`"modelConfig":{"stop":["` + strings.Repeat("ä", 257) + `"]}`, "modelConfig.stop.0"},
	"stop_a_string":               {`"modelConfig":{"stop":"a"}`, "modelConfig.stop"},
	"seed_too_large":              {`"modelConfig":{"seed":9007199254740993}`, "modelConfig.seed"},
	"seed_too_small":              {`"modelConfig":{"seed":-9007199254740993}`, "modelConfig.seed"},
	"effort_unknown":              {`"modelConfig":{"reasoningEffort":"much"}`, "modelConfig.reasoningEffort"},
	"model_config_unknown_field":  {`"modelConfig":{"topK":1}`, "modelConfig.topK"},
	"model_config_a_list":         {`"modelConfig":[]`, "modelConfig"},
	"context_config_policy":       {`"contextConfig":{"retentionPolicy":"lru"}`, "contextConfig.retentionPolicy"},
	"context_config_window_small": {`"contextConfig":{"maxTokens":63}`, "contextConfig.maxTokens"},
	"metadata_a_list":             {`"metadata":[]`, "metadata"},
	"metadata_over_16_KiB":        {`"metadata":{"a":"` + strings.Repeat("x", 16<<10) + `"}`, "metadata"},
}

const (
	allSettings = `"metadata":{"a":{"b":[1,null,"<ü>"]}},"instructions":" Be brief. ",` +
		`"contextConfig":{"maxTokens":5000,"compressionEnabled":false,"retentionPolicy":"semantic"},` +
		`"modelConfig":{"model":"other","temperature":0,"topP":1,"maxOutputTokens":2000,"stop":["a","\n"],"seed":-9007199254740992,"reasoningEffort":"low"}`
	noSettings = `"metadata":{},"contextConfig":{"maxTokens":4096,"compressionEnabled":true,"retentionPolicy":"fifo"},"modelConfig":{}`
)

// wantSettings compares the settings in a response with the members of an object. The response must have no other settings.
func wantSettings(t *testing.T, what string, got map[string]any, members string) {
	t.Helper()
	var want map[string]any
	if err := json.Unmarshal([]byte("{"+members+"}"), &want); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"metadata", "instructions", "contextConfig", "modelConfig"} {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s: %s is %v, want %v", what, name, got[name], want[name])
		}
	}
}

func TestCreateSession_Settings_ReturnedByGetOnly(t *testing.T) {
	p := start(t, echo, twoModels(echo, echo))
	for members, want := range map[string]string{
		allSettings:                           allSettings,
		`"modelConfig":{},"contextConfig":{}`: noSettings,
		`"contextConfig":{"maxTokens":20000},"instructions":"` + strings.Repeat("ä", 10_000) + `"`: `"instructions":"` + strings.Repeat("ä", 10_000) + `",` +
			strings.Replace(noSettings, "4096", "20000", 1),
		`"contextConfig":{"maxTokens":64},"instructions":"` + "abcdefgh\"": `"instructions":"abcdefgh",` + strings.Replace(noSettings, "4096", "64", 1),
	} {
		made := p.must("POST", "/v1/sessions", `{"userId":"`+user+`",`+members+`}`)
		if len(made) != 6 {
			t.Errorf("the response to POST is %v", made)
		}
		wantSettings(t, members[:20], p.must("GET", "/v1/sessions/"+made["sessionId"].(string), nil), want)
	}
	for _, listed := range p.must("GET", "/v1/sessions", nil)["data"].([]any) {
		if s := listed.(map[string]any); len(s) != 8 {
			t.Errorf("the list has the session %v", s)
		}
	}
	bad := refusals{}
	for name, wrong := range wrongSettings {
		bad["400_"+name] = refused{"POST", "/v1/sessions", `{"userId":"` + user + `",` + wrong.settings + `}`, nil, 400, "validation_error", wrong.field}
	}
	for _, field := range []string{"instructions", "contextConfig", "modelConfig"} {
		bad["400_null_"+field] = refused{"POST", "/v1/sessions", `{"userId":"` + user + `","` + field + `":null}`, nil, 400, "validation_error", field}
	}
	bad.run(t, p, p.session())
}

func TestUpdateSession_EachPatch_ExpectedSettings(t *testing.T) {
	p := start(t, echo, twoModels(echo, echo))
	made := p.must("POST", "/v1/sessions", `{"userId":"`+user+`",`+allSettings+`}`)
	path := "/v1/sessions/" + made["sessionId"].(string)
	for _, step := range []struct{ patch, want string }{
		{`"metadata":{}`, allSettings},
		{`"modelConfig":{},"contextConfig":{}`, allSettings},
		{`"metadata":{"c":1}`, strings.Replace(allSettings, `}},"ins`, `},"c":1},"ins`, 1)},
		{`"metadata":{"a":{"b":null,"d":{"e":null}},"c":null}`, strings.Replace(allSettings, `"b":[1,null,"<ü>"]`, `"d":{}`, 1)},
		{`"metadata":null,"instructions":null,"contextConfig":null,"modelConfig":null`, noSettings},
		{allSettings, strings.Replace(allSettings, `1,null,`, `1,null,`, 1)},
		{`"contextConfig":{"maxTokens":null,"retentionPolicy":null}`, strings.NewReplacer("5000", "4096", "semantic", "fifo").Replace(allSettings)},
		{`"modelConfig":{"model":null,"temperature":null,"topP":null,"maxOutputTokens":null,"stop":null,"seed":7,"reasoningEffort":null}`,
			allSettings[:strings.Index(allSettings, `"contextConfig"`)] +
				`"contextConfig":{"maxTokens":4096,"compressionEnabled":false,"retentionPolicy":"fifo"},"modelConfig":{"seed":7}`},
	} {
		before := p.must("GET", path, nil)
		got := p.must("PATCH", path, "{"+step.patch+"}")
		wantSettings(t, "PATCH "+step.patch, got, step.want)
		again := p.must("PATCH", path, "{"+step.patch+"}") // a repeat changes nothing
		wantSettings(t, "the repeated PATCH "+step.patch, again, step.want)
		after := p.must("GET", path, nil)
		wantSettings(t, "GET after "+step.patch, after, step.want)
		for _, same := range []string{"sessionId", "userId", "createdAt", "expiresAt", "lastActivity", "messageCount"} {
			if after[same] != before[same] {
				t.Errorf("PATCH %s changed %s from %v to %v", step.patch, same, before[same], after[same])
			}
		}
	}
}

func TestUpdateSession_InvalidPatch_RefusedUnchanged(t *testing.T) {
	p := start(t, echo, twoModels(echo, echo))
	made := p.must("POST", "/v1/sessions", `{"userId":"`+user+`","metadata":{"big":"`+strings.Repeat("x", 16_000)+`"},"instructions":"Be brief."}`)
	id := made["sessionId"].(string)
	path := "/v1/sessions/" + id
	before := p.must("GET", path, nil)
	bad := refusals{}
	refuse := func(name, body, field string) {
		bad["400_"+name] = refused{"PATCH", path, body, nil, 400, "validation_error", field}
	}
	for name, wrong := range wrongSettings {
		refuse(name, "{"+wrong.settings+"}", wrong.field)
	}
	refuse("empty_body", "", "")
	refuse("empty_object", "{}", "")
	refuse("list", "[]", "")
	refuse("unknown_field", `{"userId":"`+user+`"}`, "userId")
	refuse("null_in_stop", `{"modelConfig":{"stop":[null]}}`, "modelConfig.stop.0")
	refuse("duplicate_field", `{"metadata":{},"metadata":{}}`, "metadata")
	refuse("metadata_too_large_after_merge", `{"metadata":{"more":"`+strings.Repeat("x", 400)+`"}}`, "metadata")
	bad["404_unknown"] = refused{"PATCH", "/v1/sessions/" + noSession, `{"metadata":{}}`, nil, 404, "session_not_found", ""}
	bad["415_no_content_type"] = refused{"PATCH", path, `{"metadata":{}}`, []string{"Content-Type", ""}, 415, "unsupported_media_type", ""}
	bad["413_body_over_1_MiB"] = refused{"PATCH", path, `{"metadata":{}}` + strings.Repeat(" ", 1<<20), nil, 413, "payload_too_large", ""}
	bad.run(t, p, id)
	if after := p.must("GET", path, nil); !reflect.DeepEqual(after, before) {
		t.Errorf("the session changed from %v to %v", before, after)
	}

	t.Run("blames_the_field_of_the_request", func(t *testing.T) {
		p.must("PATCH", path, `{"contextConfig":{"maxTokens":100},"instructions":"`+strings.Repeat("four", 50)+`"}`)
		checkError(t, p.call("PATCH", path, `{"contextConfig":{"maxTokens":64}}`), 400, "validation_error", "contextConfig.maxTokens")
		checkError(t, p.call("PATCH", path, `{"instructions":"`+strings.Repeat("four", 60)+`"}`), 400, "validation_error", "instructions")
	})
	t.Run("policy_with_messages", func(t *testing.T) {
		other := p.session()
		p.send(other, "hello")
		checkError(t, p.call("PATCH", "/v1/sessions/"+other, `{"contextConfig":{"retentionPolicy":"semantic"}}`), 400, "validation_error", "contextConfig.retentionPolicy")
		p.must("DELETE", "/v1/sessions/"+other+"/messages", nil)
		p.must("PATCH", "/v1/sessions/"+other, `{"contextConfig":{"retentionPolicy":"semantic"}}`)
	})
	t.Run("unknown_model_lists_the_names", func(t *testing.T) {
		a := p.call("PATCH", path, `{"modelConfig":{"model":"gpt"}}`)
		if !strings.Contains(a.raw, "scripted, other") {
			t.Errorf("the error is %s", a.raw)
		}
	})
}

func TestUpdateSession_QuotaStoredBytes_429(t *testing.T) {
	p := start(t, echo, withTiers(t, `{"pro":{"storedBytes":100}}`))
	path := "/v1/sessions/" + p.session()
	checkError(t, p.call("PATCH", path, `{"instructions":"`+strings.Repeat("x", 101)+`"}`), 429, "quota_exceeded", "", "quota", "used", "limit")
	p.must("PATCH", path, `{"instructions":"`+strings.Repeat("x", 100)+`"}`)
}

// The directed model shows what each turn sends.
func TestTurn_Settings_SentFromNextTurnOn(t *testing.T) {
	model, other := newDirected(), newDirected()
	p := start(t, model, twoModels(model, other))
	id := p.must("POST", "/v1/sessions", `{"userId":"`+user+`",`+allSettings+`}`)["sessionId"].(string)
	path := "/v1/sessions/" + id
	p.must("POST", path+"/messages", `{"content":"hello","streaming":true}`)
	first := other.next(t)
	r := first.request
	if r.Messages[0].Role != "system" || r.Messages[0].Content != " Be brief. " || len(r.Messages) != 2 || r.MaxTokens != 2000 {
		t.Errorf("the first prompt is %+v", r)
	}
	if *r.Temperature != 0 || *r.TopP != 1 || len(r.Stop) != 2 || *r.Seed != -1<<53 || r.ReasoningEffort != "low" {
		t.Errorf("the parameters are %+v", r)
	}
	p.must("PATCH", path, `{"instructions":null,"modelConfig":{"model":null,"temperature":null,"maxOutputTokens":null}}`)
	first.say("Hi.")
	first.end()
	p.must("POST", path+"/messages", `{"content":"again","streaming":true,"onBusy":"enqueue"}`)
	second := model.next(t)
	r = second.request
	if len(r.Messages) != 3 || r.Messages[0].Content != "hello" || r.Messages[1].Content != "Hi." || r.MaxTokens != 1250 || r.Temperature != nil {
		t.Errorf("the second prompt is %+v", r)
	}
	second.end()
	for _, m := range p.must("GET", path+"/messages", nil)["data"].([]any) {
		if strings.Contains(fmt.Sprint(m), "Be brief") {
			t.Errorf("the history has the instructions: %v", m)
		}
	}
}
