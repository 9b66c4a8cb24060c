//go:build unix && !solaris && !aix

package embedded

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile locks a file as bbolt does: exclusively, or shared with other readers. It waits up to the time wait for another
// process to release the file, and then returns ErrInUse.
func lockFile(file *os.File, exclusive bool, wait time.Duration) error {
	const pause = 50 * time.Millisecond // bbolt has the same pause
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for end := time.Now().Add(wait); ; time.Sleep(pause) {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case !time.Now().Before(end):
			return ErrInUse
		}
	}
}
