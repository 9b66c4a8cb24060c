package window

import "encoding/json"

// Low, Normal and High are the named priorities.
const (
	Low    = -1.0
	Normal = 0.0
	High   = 1.0
)

// PriorityOf returns the priority in a message's metadata: the field "priority", either "high", "normal" or "low" (1, 0
// or -1), or a number on the same scale. Messages of higher priority are kept longer. Any other value gives Normal.
func PriorityOf(metadata json.RawMessage) float64 {
	if len(metadata) == 0 {
		return Normal
	}
	var fields map[string]json.RawMessage // a struct's field would also match another case
	if json.Unmarshal(metadata, &fields) != nil {
		return Normal
	}
	var name string
	if json.Unmarshal(fields["priority"], &name) == nil {
		return map[string]float64{"high": High, "low": Low}[name]
	}
	var number float64
	if json.Unmarshal(fields["priority"], &number) != nil {
		return Normal
	}
	return number
}
