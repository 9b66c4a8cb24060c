package conversation

import "testing"

func TestASummaryIsAdoptedIfItIsNewerAndNotOfWhatWasCleared(t *testing.T) {
	for _, test := range []struct {
		name, has, cleared, offered string
		want                        bool
	}{
		{"the first", "", "", "msg_1", true},
		{"a newer one", "msg_1", "", "msg_2", true},
		{"the same", "msg_1", "", "msg_1", false},
		{"an older one", "msg_2", "", "msg_1", false},
		{"none", "msg_2", "", "", false},
		{"of what was cleared", "", "msg_3", "msg_2", false},
		{"of what came after clearing", "", "msg_3", "msg_4", true},
	} {
		f := &fitting{Context: Context{Session: Session{Cleared: test.cleared}, Summary: Summary{Last: test.has}}}
		f.adopt(Summary{Last: test.offered})
		if got := f.Summary.Last != test.has; got != test.want {
			t.Errorf("%s: adopted: %t", test.name, got)
		}
	}
}
