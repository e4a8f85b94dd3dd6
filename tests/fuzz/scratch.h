/* What the targets that read files share: a folder in memory where the machine has one, removed at the end. */
#ifndef TIGON_FUZZ_SCRATCH_H
#define TIGON_FUZZ_SCRATCH_H

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char scratch[32];

static inline int scratch_remove_one(const char *path, const struct stat *is, int kind, struct FTW *walk) {
  (void)is, (void)kind, (void)walk;
  return remove(path);
}
static inline void scratch_remove(void) { nftw(scratch, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS); }

static inline const char *scratch_folder(void) {
  if (*scratch) return scratch;
  snprintf(scratch, sizeof scratch, "%s/tigon-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (!mkdtemp(scratch) || atexit(scratch_remove) != 0) abort();
  return scratch;
}

/* The file's path, which the next call may change. */
static inline const char *scratch_put(const char *name, const void *data, size_t bytes) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", scratch_folder(), name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) abort();
  return path;
}

#endif
