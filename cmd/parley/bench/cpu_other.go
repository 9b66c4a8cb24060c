//go:build !linux

package bench

import (
	"errors"
	"time"
)

// cpuTime is not called on this system, because findProcess finds no process without /proc.
func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
