#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own names of what this file replaces. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

static atomic_bool watched, counting, paused;
static atomic_long count;
static long fails_at;
static bool rest_fails;
static const char *only; /* the library whose allocations count; NULL: all of the list below */

/* ---- whose call it is ---- */

static void *program(void) {
  static void *base;
  Dl_info info;
  if (!base && dladdr((void *)getauxval(AT_ENTRY), &info))
    base = info.dli_fbase; /* NOLINT(performance-no-int-to-ptr) */
  return base;
}

static bool is_ours(const void *caller) {
  static const char *const names[] = {"libtigon", "libc.so", "libjansson", "libpcre2", "libutf8proc"};
  Dl_info info;
  if (!dladdr(caller, &info) || !info.dli_fname) return false;
  const char *slash = strrchr(info.dli_fname, '/'), *name = slash ? slash + 1 : info.dli_fname;
  if (only) return strncmp(name, only, strlen(only)) == 0;
  if (info.dli_fbase == program() || strstr(info.dli_fname, "/fake-")) return true;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
  return false;
}

/* Shall this one fail? */
static bool fails(const void *caller) {
  if (!atomic_load(&counting) || atomic_load(&paused) || !is_ours(caller)) return false;
  const long now = atomic_fetch_add(&count, 1) + 1;
  return fails_at > 0 && (rest_fails ? now >= fails_at : now == fails_at);
}

/* ---- what is alive: a hash table of addresses ---- */

enum { PLACES = 1 << 16 };
static uintptr_t places[PLACES]; /* 0: never used, 1: given back */
static long alive;
static atomic_flag lock = ATOMIC_FLAG_INIT;

/* The place of an address; of 0 the first free one from where `from` would be. */
static uintptr_t *find(uintptr_t from, uintptr_t address) {
  size_t at = (size_t)(from * 0x9e3779b97f4a7c15u >> 48);
  for (int i = 0; i < PLACES; ++i, at = (at + 1) % PLACES) {
    if (address ? places[at] == address : places[at] <= 1) return &places[at];
    if (places[at] == 0) break;
  }
  return NULL;
}

static void change(void *memory, bool made) {
  if (!memory || !atomic_load(&watched)) return;
  const uintptr_t address = (uintptr_t)memory;
  while (atomic_flag_test_and_set(&lock)) {}
  uintptr_t *place = find(address, made ? 0 : address);
  if (place) *place = made ? address : 1, alive += made ? 1 : -1;
  if (!place && made) alive = INT32_MIN;
  atomic_flag_clear(&lock);
}

static void *made(void *memory, const void *caller) {
  if (memory && atomic_load(&watched) && is_ours(caller)) change(memory, true);
  return memory;
}

/* ---- in place of libc's ---- */

#define VISIBLE __attribute__((visibility("default"), noinline))
#define CALLER __builtin_return_address(0)
#define NONE (errno = ENOMEM, NULL)

VISIBLE void *malloc(size_t bytes) { return fails(CALLER) ? NONE : made(__libc_malloc(bytes), CALLER); }
VISIBLE void *calloc(size_t n, size_t bytes) { return fails(CALLER) ? NONE : made(__libc_calloc(n, bytes), CALLER); }
VISIBLE void *aligned_alloc(size_t alignment, size_t bytes) {
  return fails(CALLER) ? NONE : made(__libc_memalign(alignment, bytes), CALLER);
}
VISIBLE int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  void *block = fails(CALLER) ? NULL : made(__libc_memalign(alignment, bytes), CALLER);
  if (block) *memory = block;
  return block ? 0 : ENOMEM;
}
VISIBLE void *realloc(void *memory, size_t bytes) {
  if (fails(CALLER)) return NONE;
  change(memory, false);
  return made(__libc_realloc(memory, bytes), CALLER);
}
VISIBLE void free(void *memory) {
  change(memory, false);
  __libc_free(memory);
}
VISIBLE void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails(CALLER)) return errno = ENOMEM, MAP_FAILED;
  void *pages =
      (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset); /* NOLINT(performance-no-int-to-ptr) */
  if (pages != MAP_FAILED) made(pages, CALLER);
  return pages;
}
VISIBLE int munmap(void *pages, size_t bytes) {
  change(pages, false);
  return (int)syscall(SYS_munmap, pages, bytes);
}
VISIBLE int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  return fails(CALLER) ? EAGAIN : real(thread, how, run, argument);
}
VISIBLE void *dlopen(const char *file, int mode) {
  static void *(*real)(const char *, int);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
  return fails(CALLER) ? NULL : real(file, mode);
}

/* ---- what a test calls ---- */

VISIBLE void oom_begin(long nth, bool rest) {
  program();
  atomic_store(&count, 0);
  fails_at = nth, rest_fails = rest;
  atomic_store(&counting, true);
}
VISIBLE long oom_end(void) {
  atomic_store(&counting, false);
  return count;
}
VISIBLE void oom_pause(bool pauses) { atomic_store(&paused, pauses); }
VISIBLE void oom_watch(void) {
  program();
  atomic_store(&watched, true);
}
VISIBLE long oom_alive(void) { return alive; }

__attribute__((constructor)) static void begin(void) {
  const char *nth = getenv("OOM_NTH");
  only = getenv("OOM_OF");
  if (nth) oom_begin(strtol(nth, NULL, 10), getenv("OOM_REST") != NULL);
}
__attribute__((destructor)) static void end(void) {
  const char *name = getenv("OOM_COUNT");
  const int file = name ? open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
  char text[32];
  const int bytes = snprintf(text, sizeof text, "%ld\n", oom_end());
  if (file >= 0 && write(file, text, (size_t)bytes) != bytes) abort();
}
