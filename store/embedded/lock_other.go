//go:build !unix || solaris || aix

package embedded

import (
	"os"
	"time"
)

// lockFile does nothing: on these systems, bbolt locks the file in another way, after the check. So a running server
// may write the file during the check, and the check may report a damage instead of ErrInUse.
func lockFile(*os.File, bool, time.Duration) error { return nil }
