package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// object is a map in a YAML document, with its members in the document's order.
type object yaml.MapSlice

func parseDocument(text []byte) (object, error) {
	var parsed yaml.MapSlice
	err := yaml.UnmarshalWithOptions(text, &parsed, yaml.UseOrderedMap())
	return object(parsed), err
}

// at returns the value at a path of names; nil if the path does not exist.
func (o object) at(names ...string) any {
	var value any = yaml.MapSlice(o)
	for _, name := range names {
		members, _ := value.(yaml.MapSlice)
		value = nil
		for _, m := range members {
			if m.Key == name {
				value = m.Value
			}
		}
	}
	return value
}

func (o object) object(names ...string) object {
	members, _ := o.at(names...).(yaml.MapSlice)
	return object(members)
}

func (o object) list(names ...string) []any {
	list, _ := o.at(names...).([]any)
	return list
}

func (o object) text(names ...string) string {
	if value := o.at(names...); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

// each calls f for every member that is an object, in the document's order.
func (o object) each(f func(name string, member object)) {
	for _, m := range o {
		if members, ok := m.Value.(yaml.MapSlice); ok {
			f(fmt.Sprint(m.Key), object(members))
		}
	}
}

// resolved returns the object in document that the $ref of o refers to. If o has no $ref, it returns o.
func (o object) resolved(document object) object {
	path, ok := strings.CutPrefix(o.text("$ref"), "#/")
	if !ok {
		return o
	}
	return document.object(strings.Split(path, "/")...)
}

// plain converts a value of a document for encoding/json, with the members of its objects in order.
func plain(value any) any {
	switch v := value.(type) {
	case yaml.MapSlice:
		return object(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = plain(v[i])
		}
		return all
	}
	return value
}

// MarshalJSON implements json.Marshaler. It keeps the order of the members.
func (o object) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			text.WriteByte(',')
		}
		value, err := json.Marshal(plain(m.Value))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%q:%s", fmt.Sprint(m.Key), value)
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}
