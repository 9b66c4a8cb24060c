package models

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// lookup is an environment with one key.
func lookup(variable string) (string, bool) {
	if variable == "FAST_KEY" {
		return "sk-secret", true
	}
	return "", variable == "EMPTY_KEY"
}

func TestParse_ValidList_KeepsEachField(t *testing.T) {
	got, err := Parse(` [
		{"name": "fast", "baseURL": "https://api.example.com/v1", "apiKeyEnv": "FAST_KEY", "model": "gpt-5 mini", "contextTokens": 128000,
		 "fallback": ["local/a:b"], "continues": "prefill"},
		{"name": "local/a:b", "baseURL": "http://127.0.0.1:8080/v1"}
	] `, lookup)
	want := []Config{
		{Name: "fast", BaseURL: "https://api.example.com/v1", Key: "sk-secret", Model: "gpt-5 mini", ContextTokens: 128000,
			Fallback: []string{"local/a:b"}, Continues: "prefill"},
		{Name: "local/a:b", BaseURL: "http://127.0.0.1:8080/v1"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if printed := fmt.Sprintf("%v %+v %#v", got, got[0], got); strings.Contains(printed, "secret") {
		t.Errorf("printing the configurations prints a key: %s", printed)
	}
}

func TestParse_Continues_KeepsEachAllowedValue(t *testing.T) {
	for _, want := range []string{"prefill", "vllm", "instruct", "restart", "no"} {
		got, err := Parse(`[{"name":"a","baseURL":"http://h/v1","continues":"`+want+`"}]`, lookup)
		if err != nil || got[0].Continues != want {
			t.Errorf("%s: got %#v, %v", want, got, err)
		}
	}
}

func TestParse_InvalidList_NamesEntryAndField(t *testing.T) {
	entry := func(fields string) string { return `[{"name":"a","baseURL":"http://h/v1"` + fields + `}]` }
	other := `,{"name":"b","baseURL":"http://h/v1"}]`
	many := strings.Repeat(`{"name":"a","baseURL":"http://h/v1"},`, MaxModels)
	for name, test := range map[string]struct{ text, want string }{
		"empty text":               {``, "must be JSON: a list of objects"},
		"object":                   {`{"name":"a"}`, "must be JSON: a list of objects"},
		"text after the list":      {entry("") + "]", "unexpected text after the list"},
		"empty list":               {`[]`, "the list has 0 models: use 1 to 64"},
		"null":                     {`null`, "the list has 0 models: use 1 to 64"},
		"65 models":                {`[` + many + `{"name":"z","baseURL":"http://h/v1"}]`, "the list has 65 models: use 1 to 64"},
		"entry is a string":        {`["a"]`, "models[0] must be an object"},
		"unknown field":            {entry(`,"contextSize":1`), `models[0] has the unknown field "contextSize": use name, baseURL, apiKeyEnv, model, contextTokens, fallback, continues`},
		"field in another case":    {entry(`,"Model":"x"`), `models[0] has the unknown field "Model"`},
		"repeated field":           {entry(`,"name":"b"`), `models[0] has the field "name" twice`},
		"no name":                  {`[{"baseURL":"http://h/v1"}]`, "models[0].name is missing"},
		"no baseURL":               {`[{"name":"a"}]`, "models[0].baseURL is missing"},
		"name is empty":            {`[{"name":"","baseURL":"http://h/v1"}]`, "models[0].name is invalid: use 1 to 64 characters"},
		"name with a space":        {`[{"name":"a b","baseURL":"http://h/v1"}]`, "models[0].name is invalid"},
		"name of 65 characters":    {`[{"name":"` + strings.Repeat("a", 65) + `","baseURL":"http://h/v1"}]`, "models[0].name is invalid"},
		"name is null":             {`[{"name":null,"baseURL":"http://h/v1"}]`, "models[0].name is invalid"},
		"baseURL without scheme":   {`[{"name":"a","baseURL":"h:80/v1"}]`, "models[0].baseURL must be a URL"},
		"key instead of variable":  {entry(`,"apiKeyEnv":"gsk_secret"`), "models[0].apiKeyEnv must be the name of an environment variable"},
		"variable that is not set": {entry(`,"apiKeyEnv":"OTHER_KEY"`), "models[0].apiKeyEnv names the environment variable OTHER_KEY, which is not set"},
		"variable that is empty":   {entry(`,"apiKeyEnv":"EMPTY_KEY"`), "names the environment variable EMPTY_KEY, which is not set"},
		"model is a number":        {entry(`,"model":4`), "models[0].model must be the provider's name"},
		"model with a newline":     {entry(`,"model":"a\nb"`), "models[0].model must be the provider's name"},
		"contextTokens too small":  {entry(`,"contextTokens":63`), "models[0].contextTokens must be a whole number from 64 to 100000000"},
		"contextTokens fraction":   {entry(`,"contextTokens":4096.5`), "models[0].contextTokens must be"},
		"contextTokens string":     {entry(`,"contextTokens":"4096"`), "models[0].contextTokens must be"},
		"contextTokens null":       {entry(`,"contextTokens":null`), "models[0].contextTokens must be"},
		"continues is unknown":     {entry(`,"continues":"yes"`), "models[0].continues must be one of prefill, vllm, instruct, restart, no"},
		"continues in capitals":    {entry(`,"continues":"Prefill"`), "models[0].continues must be one of"},
		"continues is empty":       {entry(`,"continues":""`), "models[0].continues must be one of"},
		"continues is null":        {entry(`,"continues":null`), "models[0].continues must be one of"},
		"continues is a boolean":   {entry(`,"continues":true`), "models[0].continues must be one of"},
		"fallback is a string":     {entry(`,"fallback":"b"`), "models[0].fallback must be a list"},
		"fallback is unknown":      {entry(`,"fallback":["b"]`), "models[0].fallback[0] is not the name of a model: use one of a"},
		"fallback is the model":    {entry(`,"fallback":["a"]`), "models[0].fallback[0] is the model itself"},
		"fallback repeats a model": {strings.TrimSuffix(entry(`,"fallback":["b","b"]`), "]") + other, `models[0].fallback[1] repeats "b"`},
		"name that repeats":        {strings.TrimSuffix(entry(""), "]") + strings.Replace(other, `"b"`, `"a"`, 1), `models[1].name is "a", like models[0].name`},
		"error in the second":      {strings.TrimSuffix(entry(""), "]") + `,{"name":"b","baseURL":""}]`, "models[1].baseURL must be a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.text, lookup)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, %v; want an error with %q and without a key", got, err, test.want)
			}
		})
	}
}
