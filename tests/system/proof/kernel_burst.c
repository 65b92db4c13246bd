/* Burns system time on one core: `kernel_burst CORE SECONDS`. Prints when it began and ended (wall nanoseconds), and the
 * permille of system time that it was given in that second of the wall clock, of those in between, in which it had least. */
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

static long long system_nanos(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_stime.tv_sec * 1000000000LL + usage.ru_stime.tv_usec * 1000LL;
}

static long long burn(int zero, long long until)
{
    long long second = nanos(CLOCK_REALTIME) / 1000000000, at = 0, had = 0, least = 1000;
    while (nanos(CLOCK_MONOTONIC) < until) {
        if (read(zero, buffer, sizeof(buffer)) < 0)
            abort();
        long long now = nanos(CLOCK_REALTIME);
        if (now / 1000000000 == second)
            continue;
        long long has = system_nanos();
        if (at && (has - had) * 1000 / (now - at) < least)
            least = (has - had) * 1000 / (now - at);
        second = now / 1000000000;
        at = now;
        had = has;
    }
    return least;
}

int main(int count, char **arguments)
{
    cpu_set_t cores;
    if (count != 3)
        return 2;
    CPU_ZERO(&cores);
    CPU_SET(atoi(arguments[1]), &cores);
    int zero = open("/dev/zero", O_RDONLY);
    if (zero < 0 || sched_setaffinity(0, sizeof(cores), &cores))
        return 1;
    long long begin = nanos(CLOCK_REALTIME);
    long long least = burn(zero, nanos(CLOCK_MONOTONIC) + (long long)(atof(arguments[2]) * 1e9));
    printf("%lld %lld %lld\n", begin, nanos(CLOCK_REALTIME), least);
    return 0;
}
