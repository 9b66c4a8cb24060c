package window

import "encoding/json"

// Low, Normal and High are the named priorities.
const (
	Low    = -1.0
	Normal = 0.0
	High   = 1.0
)

// PriorityOf returns the priority in a message's metadata. The field "priority" is "high", "normal" or "low" (1, 0 or
// -1), or any number on this scale. Messages of higher priority are kept longer. Any other value gives Normal.
func PriorityOf(metadata json.RawMessage) float64 {
	if len(metadata) == 0 {
		return Normal
	}
	var fields map[string]json.RawMessage // not a struct: its field would also match "Priority" and "PRIORITY"
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
