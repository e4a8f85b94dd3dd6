/* A file of the OpenCL kernel cache. The first byte says whether the head is made to fit the rest, because no chance hits a checksum. */
#include "fuzz/scratch.h"
#include "opencl/program.h"

enum { KEY = 0x1234, HEAD = 32 };

/* FNV-1a, as cache.c has it. */
static uint64_t sum_of(const uint8_t *data, size_t bytes) {
  uint64_t sum = KEY;
  for (size_t i = 0; i < bytes; ++i) sum = (sum ^ data[i]) * 0x100000001b3u;
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  setenv("TIGON_OPENCL_CACHE", scratch_folder(), 1);
  uint8_t *file = malloc(HEAD + size);
  if (!file) abort();
  const bool fits = *data & 1;
  ++data, --size;
  const uint64_t words[] = {KEY, size, sum_of(data, size)};
  size_t bytes = size, head = 0;
  if (fits) {
    memcpy(file, "tigoncl", 8);
    memcpy(file + 8, words, sizeof words);
    head = HEAD;
  }
  memcpy(file + head, data, size);
  char name[64];
  snprintf(name, sizeof name, "norm-f32-%016llx", (unsigned long long)KEY);
  scratch_put(name, file, head + size);
  free(file);
  unsigned char *read = opencl_cache_read("norm-f32", KEY, &bytes);
  if (fits && size && (!read || bytes != size || memcmp(read, data, size) != 0)) abort();
  if (!fits && read && size != bytes + HEAD) abort();
  if (read && bytes) { /* as it is written again, so it is read */
    opencl_cache_write("again", KEY, read, bytes);
    size_t more;
    unsigned char *again = opencl_cache_read("again", KEY, &more);
    if (!again || more != bytes || memcmp(again, read, bytes) != 0) abort();
    free(again);
  }
  free(read);
  return 0;
}
