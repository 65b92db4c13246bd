/* A wall clock set wrong for one program only: LD_PRELOAD this. The file named by WRONG_CLOCK says by how many seconds. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now)
{
	const char *path = getenv("WRONG_CLOCK");
	int failed = syscall(SYS_clock_gettime, id, now);
	FILE *file = failed || id != CLOCK_REALTIME || !path ? NULL : fopen(path, "r");
	long ahead = 0;

	if (file) {
		if (fscanf(file, "%ld", &ahead) == 1)
			now->tv_sec += ahead;
		fclose(file);
	}
	return failed;
}
