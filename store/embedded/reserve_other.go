//go:build !linux

package embedded

import (
	"errors"
	"os"
)

// allocate does nothing: this system has no fallocate.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
