package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of a process since its start, user and system. The clock of a process counts nanoseconds, while
// /proc/PID/stat counts ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	const perProcess = 2                 // CPUCLOCK_SCHED of the kernel
	clock := int32(^pid)<<3 | perProcess // as clock_getcpuclockid(3) makes it
	var spent unix.Timespec
	if err := unix.ClockGettime(clock, &spent); err != nil {
		return 0, err
	}
	return time.Duration(spent.Nano()), nil
}
