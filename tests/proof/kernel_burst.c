/* Burns system time on one core: `kernel_burst CORE SECONDS`. Prints when it began and ended (wall nanoseconds), and how
 * many microseconds of system time it was given in between. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 20];

static long long nanos(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void burn(int zero, long long until)
{
    while (nanos(CLOCK_MONOTONIC) < until)
        if (read(zero, buffer, sizeof(buffer)) < 0)
            abort();
}

int main(int count, char **arguments)
{
    cpu_set_t cores;
    struct rusage usage;
    if (count != 3)
        return 2;
    CPU_ZERO(&cores);
    CPU_SET(atoi(arguments[1]), &cores);
    int zero = open("/dev/zero", O_RDONLY);
    if (zero < 0 || sched_setaffinity(0, sizeof(cores), &cores))
        return 1;
    long long begin = nanos(CLOCK_REALTIME);
    burn(zero, nanos(CLOCK_MONOTONIC) + (long long)(atof(arguments[2]) * 1e9));
    getrusage(RUSAGE_SELF, &usage);
    printf("%lld %lld %lld\n", begin, nanos(CLOCK_REALTIME), usage.ru_stime.tv_sec * 1000000LL + usage.ru_stime.tv_usec);
    return 0;
}
