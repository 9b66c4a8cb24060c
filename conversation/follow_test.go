package conversation

import "testing"

// Two nodes fold a session at once; the other was first, and its viewers here were told before our own fold bounced.
func TestAFoldThatBouncesForgetsNoNewerSummary(t *testing.T) {
	x := &followed{id: "s", summary: Summary{Last: "a"}, glanced: true}
	f := newFollower(&Service{})
	f.sessions[x.id] = x
	undo := f.folds(x.id, Summary{Last: "b", Text: "ours"})
	x.summary = Summary{Last: "c"} // a glance found it
	undo()
	if x.summary.Last != "c" {
		t.Errorf("the summary after %q is forgotten, and would be told of again: %q is left", "c", x.summary.Last)
	}
	undo = f.folds(x.id, Summary{Last: "d"})
	undo()
	if x.summary.Last != "c" {
		t.Errorf("what bounced is kept: %q", x.summary.Last)
	}
}
