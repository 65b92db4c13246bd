/* Spins in a page of anonymous executable memory, as compiled code of a JIT does. */
#include <string.h>
#include <sys/mman.h>

int main(void) {
#if defined(__x86_64__)
    static const unsigned char turn[] = {0xeb, 0xfe}; /* jmp to itself */
#elif defined(__aarch64__)
    static const unsigned char turn[] = {0x00, 0x00, 0x00, 0x14}; /* b to itself */
#endif
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    memcpy(page, turn, sizeof turn);
    __builtin___clear_cache((char *)page, (char *)page + sizeof turn);
    ((void (*)(void))page)();
    return 0;
}
