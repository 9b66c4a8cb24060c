package main

import (
	"slices"
	"time"
)

// row is a row of the table: a kind of fault in certain surroundings.
type row struct {
	name  string
	fault string // for the table
	where string // the surroundings, for the table
	try   func(w *world)

	lossy   bool     // the surroundings may lose confirmed writes
	allowed []string // error codes that the fault causes, besides service_unavailable and session_busy
	lies    []string // what the model does after a third of the messages
	// outage and ending are bounds that the guides promise, or that follow from the schedule. A try adds a margin. 0 means no
	// bound.
	outage, ending time.Duration
	short          bool // part of the short form in `make test`
	// unchecked means that the gate makes no health checks. A check of /readyz calls the store. In this row, the nodes
	// must recover without such calls.
	unchecked bool
}

// rows returns all rows, in the order of the table.
func rows() []*row {
	return slices.Concat(nodeRows(), redisRows(), failoverRows(), modelRows(), fileRows(), clockRows(), floodRows())
}

// find returns the rows with these names, and the first unknown name.
func find(names []string) (found []*row, unknown string) {
	for _, name := range names {
		i := slices.IndexFunc(rows(), func(r *row) bool { return r.name == name })
		if i < 0 {
			return nil, name
		}
		found = append(found, rows()[i])
	}
	return found, ""
}
