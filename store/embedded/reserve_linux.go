package embedded

import (
	"os"
	"syscall"
)

// keepSize is FALLOC_FL_KEEP_SIZE: the blocks are allocated, and the size of the file stays the same. So bbolt and older versions
// of the store do not see the reserve.
const keepSize = 1

// allocate allocates the blocks of a file in [from, from+n). The content and the size of the file stay the same. If the disk has
// too little room, some of the blocks may stay allocated.
func allocate(f *os.File, from, n int64) error {
	for {
		if err := syscall.Fallocate(int(f.Fd()), keepSize, from, n); err != syscall.EINTR {
			return err
		}
	}
}
