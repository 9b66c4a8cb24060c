package main

import (
	_ "embed"
	"fmt"
	"strings"
)

// seedList is the list of seeds that once broke a promise.
//
//go:embed seeds.txt
var seedList string

// kept is a try that once broke a promise.
type kept struct {
	row  *row
	seed uint64
}

// parseSeeds parses a list: a line has the name of a row, a seed, and a comment after "#".
func parseSeeds(list string) (all []kept, err error) {
	for i, line := range strings.Split(list, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var name string
		var k kept
		if _, err := fmt.Sscan(line, &name, &k.seed); err != nil {
			return nil, fmt.Errorf("line %d of the seeds: %q: want a fault and a seed", i+1, line)
		}
		found, unknown := find([]string{name})
		if unknown != "" {
			return nil, fmt.Errorf("line %d of the seeds: unknown fault %q", i+1, unknown)
		}
		k.row = found[0]
		all = append(all, k)
	}
	return all, nil
}
