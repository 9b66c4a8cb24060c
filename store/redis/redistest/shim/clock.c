/* This library lets a test set the clock of one redis-server, which preloads it (../clock.go). It adds an offset to the time of
 * day. The environment variable PARLEY_TEST_CLOCK names the file that holds the offset, a 64-bit number of nanoseconds. The
 * monotonic clocks do not change, so the server's timers and timeouts stay the same. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t none;
static int64_t *ahead = &none;

__attribute__((constructor)) static void map_clock(void)
{
	const char *path = getenv("PARLEY_TEST_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		_exit(97);
	void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
	if (page == MAP_FAILED)
		_exit(98);
	close(file);
	ahead = page;
}

/* It calls the kernel directly, not libc: looking up libc's function would allocate memory, and the allocator may call
 * clock_gettime. */
int clock_gettime(clockid_t clock, struct timespec *at)
{
	int failed = syscall(SYS_clock_gettime, clock, at);
	if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t n = at->tv_nsec + __atomic_load_n(ahead, __ATOMIC_RELAXED);
	at->tv_sec += n / 1000000000;
	at->tv_nsec = n % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now))
		return -1;
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at)
{
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME_COARSE, &now))
		return -1;
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
