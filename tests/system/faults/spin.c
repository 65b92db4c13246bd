// Spins, now in one function and now in another.
__attribute__((noinline)) static void one(volatile unsigned long *sum) {
    for (int i = 0; i < 1000; i++) *sum += i;
}

__attribute__((noinline)) static void other(volatile unsigned long *sum) {
    for (int i = 0; i < 1000; i++) *sum ^= i;
}

int main(void) {
    volatile unsigned long sum = 0;
    for (;;) {
        one(&sum);
        other(&sum);
    }
}
