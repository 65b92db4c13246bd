// Maps one file of a long path as code, as often as the kernel allows, and then spins.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((noinline)) void spin(void) {
    for (volatile unsigned long i = 0;; i++) {}
}

int main(int argc, char **argv) {
    char name[251];
    memset(name, 'd', 250);
    name[250] = 0;
    for (int depth = 0; depth < 15; depth++) {
        if (mkdir(name, 0755) || chdir(name)) return 1;
    }
    int file = open("code", O_RDWR | O_CREAT, 0755);
    if (file < 0 || ftruncate(file, 4096)) return 2;
    for (int i = 0; i < 64000; i++) {
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) break;
    }
    if (write(1, "ready\n", 6) != 6) return 3;
    spin();
}
