package api

import (
	"encoding/json"
	"reflect"
)

// Optional is a field of a request that may be left out. In a merge patch, null removes what the field had set before. The zero
// Optional was left out.
type Optional[T any] struct {
	Value *T   // nil if the field was left out, or is null
	Null  bool // the field is null, which only [DecodePatch] accepts
}

// Given reports whether the request has the field.
func (o Optional[T]) Given() bool { return o.Value != nil || o.Null }

// UnmarshalJSON implements json.Unmarshaler.
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		o.Null = true
		return nil
	}
	o.Value = new(T)
	return json.Unmarshal(text, o.Value)
}

func (Optional[T]) of() reflect.Type { return reflect.TypeFor[T]() }

// optional returns the type T if t is Optional[T].
func optional(t reflect.Type) (of reflect.Type, ok bool) {
	if t == nil || t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[Error]().PkgPath() {
		return nil, false
	}
	o, ok := reflect.Zero(t).Interface().(interface{ of() reflect.Type })
	if !ok {
		return nil, false
	}
	return o.of(), true
}
