package tokens

import (
	"sync"
	"testing"
)

// The race detector checks that the first call builds the vocabulary and that all calls share it safely.
func TestCount_Concurrent_SameCount(t *testing.T) {
	c := For("gpt-4o")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				if got := c.Count("hello world\n \n"); got != 3 {
					t.Errorf("Count returned %d", got)
				}
			}
		})
	}
	group.Wait()
}
