#include "faults.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *failing;
static long count, fails_at;
static int returned, error;

void faults_begin(const char *function, long nth, int result, int number) {
  failing = function, count = 0, fails_at = nth, returned = result, error = number;
}
long faults_end(void) {
  failing = NULL;
  return count;
}

int faults_now(const char *function) {
  if (!failing || !strstr(failing, function)) return 0;
  ++count;
  if (fails_at < 0 ? count < -fails_at : count != fails_at) return 0;
  errno = error;
  return 1;
}

#define STAND_IN(name, returns, must_fail, failed, parameters, arguments) \
  returns __real_##name parameters;                                       \
  returns __wrap_##name parameters;                                       \
  returns __wrap_##name parameters { return faults_now(must_fail) ? (returns)(failed) : __real_##name arguments; }

STAND_IN(malloc, void *, "memory", NULL, (size_t bytes), (bytes))
STAND_IN(calloc, void *, "memory", NULL, (size_t n, size_t bytes), (n, bytes))
STAND_IN(realloc, void *, "memory", NULL, (void *old, size_t bytes), (old, bytes))
STAND_IN(mmap, void *, "mmap", MAP_FAILED, (void *at, size_t bytes, int may, int flags, int file, off_t from),
         (at, bytes, may, flags, file, from))
STAND_IN(mprotect, int, "mprotect", returned, (void *at, size_t bytes, int may), (at, bytes, may))
STAND_IN(fstat, int, "fstat", returned, (int file, struct stat *status), (file, status))
STAND_IN(pread, ssize_t, "pread", returned, (int file, void *to, size_t bytes, off_t from), (file, to, bytes, from))
STAND_IN(write, ssize_t, "write", returned, (int file, const void *from, size_t bytes), (file, from, bytes))
STAND_IN(fsync, int, "fsync", returned, (int file), (file))
STAND_IN(posix_fallocate, int, "posix_fallocate", returned, (int file, off_t from, off_t bytes), (file, from, bytes))

/* The file is closed all the same. */
int __real_close(int file);
int __wrap_close(int file);
int __wrap_close(int file) {
  const int done = __real_close(file);
  return faults_now("close") ? returned : done;
}

/* A clock that fails is `returned` seconds ahead. */
int __real_clock_gettime(clockid_t clock, struct timespec *to);
int __wrap_clock_gettime(clockid_t clock, struct timespec *to);
int __wrap_clock_gettime(clockid_t clock, struct timespec *to) {
  const int done = __real_clock_gettime(clock, to);
  if (faults_now("clock_gettime")) to->tv_sec += returned;
  return done;
}
