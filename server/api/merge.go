package api

import (
	"bytes"
	"encoding/json"
)

// MergePatch returns target changed by patch, as RFC 7396 defines it. Both must be valid JSON without duplicate names; an empty
// target means that there is none. Values that the patch does not change keep their text. The depth of both is limited by [Decode].
func MergePatch(target, patch []byte) []byte {
	changes, isObject := members(patch)
	if !isObject {
		return patch
	}
	merged, isObject := members(target)
	if !isObject {
		merged = make(map[string]json.RawMessage)
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(merged, name)
			continue
		}
		merged[name] = MergePatch(merged[name], change)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(merged); err != nil {
		panic(err) // impossible: all values are valid JSON
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// members returns the members of an object; false if text is another value, or empty.
func members(text []byte) (all map[string]json.RawMessage, isObject bool) {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 || text[0] != jsonObject {
		return nil, false
	}
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err) // impossible: text is valid JSON
	}
	return all, true
}
