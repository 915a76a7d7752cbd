/*
 * The clock of a server under test, loaded before the server's C library. It shows the instant in a
 * file: microseconds since the Unix epoch, as eight bytes in this machine's order. If the file holds
 * 0, it shows the real time. While it shows an instant, the monotonic clock stops too: Valkey 9 reads
 * the time occasionally and uses the monotonic clock in between.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/*
 * The instant at which the monotonic clock stops, longer than any machine has run: all timers of the
 * server fire once, and then none does. When the clock follows the real time again, the monotonic
 * clock continues from here, and timers fire as usual.
 */
#define STANDS_AT_S 1000000000

static volatile int64_t *fixed_us;
static volatile int has_stood;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("RL_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof *fixed_us, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED) fixed_us = map;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int64_t us = fixed_us ? *fixed_us : 0;
    if (us != 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        time->tv_sec = us / 1000000;
        time->tv_nsec = us % 1000000 * 1000;
        return 0;
    }
    if (us != 0 && clock == CLOCK_MONOTONIC) {
        has_stood = 1;
        time->tv_sec = STANDS_AT_S;
        time->tv_nsec = 0;
        return 0;
    }
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (has_stood && clock == CLOCK_MONOTONIC) time->tv_sec += STANDS_AT_S;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    time->tv_sec = precise.tv_sec;
    time->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds) *seconds = precise.tv_sec;
    return precise.tv_sec;
}

/* Hides /proc/cpuinfo, without which no server uses the processor's counter as its clock. */
static FILE *open_any(const char *name, const char *path, const char *mode) {
    if (strcmp(path, "/proc/cpuinfo") == 0) return NULL;
    FILE *(*next)(const char *, const char *) =
        (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
    return next(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_any("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_any("fopen64", path, mode);
}
