/* Spins at the bottom of a deep stack, so that every sample of it is large. Usage: deep_stack SECONDS */
#include <stdlib.h>
#include <time.h>

static volatile long spun;

__attribute__((noinline)) static void spin(double seconds) {
    time_t end = time(NULL) + (time_t)seconds;
    while (time(NULL) < end)
        for (int i = 0; i < 100000; i++) spun++;
}

__attribute__((noinline)) static void descend(int depth, double seconds) {
    if (depth) descend(depth - 1, seconds);
    else spin(seconds);
    spun++;
}

int main(int argc, char **argv) {
    descend(110, argc > 1 ? atof(argv[1]) : 1);
    return 0;
}
