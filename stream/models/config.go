package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// MaxModels is the maximum number of configured models. Each is a time series in several metrics and has its own probes. No
// operator lets users choose among more.
const MaxModels = 64

const (
	maxProviderName   = 256 // bytes; Probe accepts no longer name from a server either
	minContext        = 64  // the smallest window of a session
	maxContext        = 100_000_000
	nameRule          = `use 1 to 64 characters of A-Z a-z 0-9 . _ : / -`
	configurationForm = "a list of objects with the fields name, baseURL, apiKeyEnv, model, contextTokens, fallback and continues"
)

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,64}$`)
	// validVariable matches the name of an environment variable. It has no small letters: a key that stands there by mistake has
	// some, and errors quote only valid names.
	validVariable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,127}$`)
	// continuations lists the ways in which a model can continue a reply that another attempt began.
	continuations = []string{
		"prefill",  // the text so far is the last message of the prompt, as an assistant message
		"vllm",     // the same, with vLLM's parameter continue_final_message
		"instruct", // an instruction asks the model to go on where the text stops
		"restart",  // the model writes a new reply
		"no",       // the model continues no reply
	}
)

// IsName reports whether a model may have that configured name: 1 to 64 characters of [A-Za-z0-9._:/-].
func IsName(name string) bool { return validName.MatchString(name) }

// Config is the configuration of one model.
type Config struct {
	Name    string // see IsName
	BaseURL string // the URL of the API with its version
	Key     string // the API key; "" for none
	Model   string // the provider's name; "" means the first chat model that the server lists
	// ContextTokens is the size of the model's context in the provider's tokens; 0 means that it is learned.
	ContextTokens int
	// Fallback names other configured models, and Continues is how the model continues a reply that another attempt began: one of
	// continuations, or "" if it is not set. Both are kept for a later version, and have no effect yet.
	Fallback  []string
	Continues string
}

// String returns the name, so that printing a Config does not print its key.
func (c Config) String() string { return c.Name }

// GoString returns the same as String.
func (c Config) GoString() string { return c.Name }

// Parse parses the value of PARLEY_MODELS: a JSON list of 1 to 64 models with different names. lookup returns the value of an
// environment variable, and whether it is set. Parsing is strict: an unknown, repeated or misspelt field is an error, because
// nobody would notice it otherwise. The error names the entry and the field, and contains no key.
func Parse(text string, lookup func(variable string) (value string, set bool)) ([]Config, error) {
	var entries []json.RawMessage
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&entries); err != nil {
		return nil, fmt.Errorf("the value must be JSON: %s", configurationForm)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected text after the list")
	}
	if len(entries) < 1 || len(entries) > MaxModels {
		return nil, fmt.Errorf("the list has %d models: use 1 to %d", len(entries), MaxModels)
	}
	configs := make([]Config, len(entries))
	for i, entry := range entries {
		e := entryParser{at: fmt.Sprintf("models[%d]", i), lookup: lookup}
		if err := e.parse(entry, &configs[i]); err != nil {
			return nil, err
		}
	}
	return configs, checkTogether(configs)
}

// checkTogether checks the rules that concern several entries.
func checkTogether(configs []Config) error {
	names := make([]string, len(configs))
	for i, c := range configs {
		if first := slices.Index(names[:i], c.Name); first >= 0 {
			return fmt.Errorf("models[%d].name is %q, like models[%d].name: use different names", i, c.Name, first)
		}
		names[i] = c.Name
	}
	for i, c := range configs {
		for k, other := range c.Fallback {
			where := fmt.Sprintf("models[%d].fallback[%d]", i, k)
			switch {
			case other == c.Name:
				return fmt.Errorf("%s is the model itself: name another model", where)
			case !slices.Contains(names, other):
				return fmt.Errorf("%s is not the name of a model: use one of %s", where, strings.Join(names, ", "))
			case slices.Contains(c.Fallback[:k], other):
				return fmt.Errorf("%s repeats %q: name each model once", where, other)
			}
		}
	}
	return nil
}

// entryParser parses one entry of the list.
type entryParser struct {
	at     string // the entry, for errors
	lookup func(string) (string, bool)
}

// fields lists the fields of an entry. Each function reads the value of the field into c; its error continues a sentence that
// begins with the name of the field.
var fields = []struct {
	name string
	read func(p *entryParser, value json.RawMessage, c *Config) error
}{
	{"name", func(_ *entryParser, value json.RawMessage, c *Config) error {
		if !isString(value, &c.Name) || !IsName(c.Name) {
			return errors.New("is invalid: " + nameRule)
		}
		return nil
	}},
	{"baseURL", func(_ *entryParser, value json.RawMessage, c *Config) error {
		if !isString(value, &c.BaseURL) || !isBaseURL(c.BaseURL) {
			return errors.New("must be a URL that begins with http:// or https:// and a host, for example http://127.0.0.1:11434/v1")
		}
		return nil
	}},
	{"apiKeyEnv", (*entryParser).key},
	{"model", func(_ *entryParser, value json.RawMessage, c *Config) error {
		if !isString(value, &c.Model) || !isProviderName(c.Model) {
			return fmt.Errorf("must be the provider's name for the model: a string of 1 to %d bytes without control characters", maxProviderName)
		}
		return nil
	}},
	{"contextTokens", func(_ *entryParser, value json.RawMessage, c *Config) error {
		if json.Unmarshal(value, &c.ContextTokens) != nil || c.ContextTokens < minContext || c.ContextTokens > maxContext {
			return fmt.Errorf("must be a whole number from %d to %d", minContext, maxContext)
		}
		return nil
	}},
	{"fallback", func(_ *entryParser, value json.RawMessage, c *Config) error {
		if json.Unmarshal(value, &c.Fallback) != nil || c.Fallback == nil {
			return errors.New("must be a list of names of other models")
		}
		return nil
	}},
	{"continues", func(_ *entryParser, value json.RawMessage, c *Config) error {
		if !isString(value, &c.Continues) || !slices.Contains(continuations, c.Continues) {
			return errors.New("must be one of " + strings.Join(continuations, ", "))
		}
		return nil
	}},
}

// key reads the key from the environment variable that the entry names.
func (p *entryParser) key(value json.RawMessage, c *Config) error {
	var variable string
	if !isString(value, &variable) || !validVariable.MatchString(variable) {
		return errors.New("must be the name of an environment variable in capital letters, not the key itself: for example OPENAI_API_KEY")
	}
	key, set := p.lookup(variable)
	if !set || key == "" {
		return fmt.Errorf("names the environment variable %s, which is not set", variable)
	}
	c.Key = key
	return nil
}

// parse parses an entry into c.
func (p *entryParser) parse(entry json.RawMessage, c *Config) error {
	d := json.NewDecoder(bytes.NewReader(entry))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return fmt.Errorf("%s must be an object", p.at)
	}
	var seen []string
	for d.More() {
		token, _ := d.Token() // Parse has decoded the whole text once, so it is valid JSON
		name, _ := token.(string)
		var value json.RawMessage
		_ = d.Decode(&value)
		if slices.Contains(seen, name) {
			return fmt.Errorf("%s has the field %q twice", p.at, name)
		}
		seen = append(seen, name)
		if err := p.field(name, value, c); err != nil {
			return err
		}
	}
	for _, required := range []string{"name", "baseURL"} {
		if !slices.Contains(seen, required) {
			return fmt.Errorf("%s.%s is missing", p.at, required)
		}
	}
	return nil
}

func (p *entryParser) field(name string, value json.RawMessage, c *Config) error {
	known := make([]string, len(fields))
	for i, f := range fields {
		if known[i] = f.name; f.name != name {
			continue
		}
		if err := f.read(p, value, c); err != nil {
			return fmt.Errorf("%s.%s %w", p.at, name, err)
		}
		return nil
	}
	return fmt.Errorf("%s has the unknown field %q: use %s", p.at, name, strings.Join(known, ", "))
}

// isString decodes a JSON string into s. It returns false for any other JSON.
func isString(value json.RawMessage, s *string) bool {
	return bytes.HasPrefix(value, []byte(`"`)) && json.Unmarshal(value, s) == nil
}

func isBaseURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

func isProviderName(name string) bool {
	return name != "" && len(name) <= maxProviderName && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) })
}
