//go:build !unix || solaris || aix

package embedded

import (
	"os"
	"time"
)

// lockFile does nothing: on these systems, bbolt locks the file in another way, and later. Only the check of the file is then not
// protected from a running server, and may report a damage instead of ErrInUse.
func lockFile(*os.File, bool, time.Duration) error { return nil }
