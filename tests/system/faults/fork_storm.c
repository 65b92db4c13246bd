/* Forks a given number of children in a given time, fewer where that would take twice as long.
   Usage: fork_storm fork|exec COUNT SECONDS */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 4) return 0; /* a child that was executed: it has nothing to do */
    int exec = !strcmp(argv[1], "exec");
    long count = atol(argv[2]), done = 0;
    double seconds = atof(argv[3]), began = now();
    double end = began + 2 * seconds;
    while (done < count && now() < end) {
        long due = (now() - began) / seconds * count + 1;
        for (; done < due && done < count && now() < end; done++) {
            pid_t child = exec ? vfork() : fork();
            if (child == 0) {
                if (exec) execl("/proc/self/exe", "storm-child", (char *)0);
                _exit(0);
            }
            if (child > 0) waitpid(child, NULL, 0);
        }
        usleep(500);
    }
    printf("%ld %.3f\n", done, now() - began);
    return 0;
}
