//go:build !linux

package bench

import (
	"errors"
	"time"
)

// cpuTime is not implemented on this system.
func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
