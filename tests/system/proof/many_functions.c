/* A load with many functions: rounds of user and kernel work, each of a random length, until the time is up.
 * Random lengths, because work in step with a sampler's clock would be seen always or never. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS 4096
static uint32_t words[WORDS];
static unsigned char packed[WORDS * 8];
static uint32_t seed;
static volatile uint32_t kept;

static uint32_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    return seed ^= seed << 5;
}

static void fill_words(void)
{
    for (int i = 0; i < WORDS; i++)
        words[i] = next_random();
}

static uint32_t hash_words(void)
{
    uint32_t hash = 2166136261u;
    for (int i = 0; i < WORDS; i++)
        hash = (hash ^ words[i]) * 16777619u;
    return hash;
}

static int run_length_pack(void)
{
    const unsigned char *in = (const unsigned char *)words;
    int out = 0;
    for (int i = 0; i < WORDS * 4;) {
        int run = 1;
        while (i + run < WORDS * 4 && run < 255 && in[i + run] == in[i])
            run++;
        packed[out++] = (unsigned char)run;
        packed[out++] = in[i];
        i += run;
        if (out > (int)sizeof(packed) - 2)
            out = 0;
    }
    return out;
}

static int delta_pack(void)
{
    int out = 0;
    for (int i = 1; i < WORDS; i++) {
        uint32_t delta = words[i] - words[i - 1];
        do {
            packed[out++] = (unsigned char)(delta & 127);
            delta >>= 7;
        } while (delta);
        if (out > (int)sizeof(packed) - 8)
            out = 0;
    }
    return out;
}

static void sift_down(uint32_t *heap, int root, int size)
{
    for (int child; (child = 2 * root + 1) < size; root = child) {
        if (child + 1 < size && heap[child] < heap[child + 1])
            child++;
        if (heap[root] >= heap[child])
            return;
        uint32_t swap = heap[root];
        heap[root] = heap[child];
        heap[child] = swap;
    }
}

static void heap_sort(void)
{
    for (int i = WORDS / 2 - 1; i >= 0; i--)
        sift_down(words, i, WORDS);
    for (int i = WORDS - 1; i > 0; i--) {
        uint32_t swap = words[0];
        words[0] = words[i];
        words[i] = swap;
        sift_down(words, 0, i);
    }
}

static void insertion_sort(void)
{
    for (int start = 0; start + 64 <= WORDS; start += 64)
        for (int i = start + 1; i < start + 64; i++)
            for (int j = i; j > start && words[j - 1] > words[j]; j--) {
                uint32_t swap = words[j];
                words[j] = words[j - 1];
                words[j - 1] = swap;
            }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void library_sort(void) { qsort(words, WORDS, sizeof(*words), by_value); }

static void user_round(void)
{
    fill_words();
    kept += hash_words();
    kept += (uint32_t)run_length_pack();
    switch (next_random() % 3) {
    case 0: heap_sort(); break;
    case 1: insertion_sort(); break;
    default: library_sort();
    }
    kept += (uint32_t)delta_pack();
}

static void read_and_write(void)
{
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 40; i++) {
        if (read(zero, packed, sizeof(packed)) < 0 || write(null, packed, sizeof(packed)) < 0)
            abort();
    }
    close(zero);
    close(null);
}

static void look_at_files(void)
{
    struct stat status;
    for (int i = 0; i < 200; i++)
        kept += (uint32_t)stat("/usr/lib/os-release", &status);
}

static void list_processes(void)
{
    DIR *directory = opendir("/proc");
    while (readdir(directory))
        kept++;
    closedir(directory);
}

static void touch_memory(void)
{
    size_t size = 2 << 20;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < size; at += 4096)
        memory[at] = 1;
    munmap(memory, size);
}

static void talk_through_a_pipe(void)
{
    int ends[2];
    if (pipe(ends))
        abort();
    for (int i = 0; i < 200; i++)
        if (write(ends[1], packed, 512) != 512 || read(ends[0], packed, 512) != 512)
            abort();
    close(ends[0]);
    close(ends[1]);
}

static void run_short_programs(void)
{
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        waitpid(child, NULL, 0);
    }
}

static void system_round(void)
{
    switch (next_random() % 6) {
    case 0: read_and_write(); break;
    case 1: look_at_files(); break;
    case 2: list_processes(); break;
    case 3: touch_memory(); break;
    case 4: talk_through_a_pipe(); break;
    default: run_short_programs();
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    double end = now() + atof(arguments[1]);
    seed = 2463534242u + (uint32_t)atoi(arguments[2]);
    while (now() < end) {
        for (uint32_t rounds = next_random() % 8; rounds; rounds--)
            user_round();
        for (uint32_t rounds = next_random() % 12; rounds; rounds--)
            system_round();
    }
    return 0;
}
