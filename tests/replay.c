/* Runs a target of tests/fuzz without libFuzzer: each file of its corpus as it is, and broken copies of it. */
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BROKEN = 100, MOST_BYTES = 1 << 16 };

static uint32_t draw(uint32_t below) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((state >> 33) % below);
}

/* In a block of its own size, so that a sanitizer sees a read behind the end. */
static void run(const uint8_t *data, size_t bytes) {
  uint8_t *own = malloc(bytes ? bytes : 1);
  if (!own) abort();
  memcpy(own, data, bytes);
  LLVMFuzzerTestOneInput(own, bytes);
  free(own);
}

/* Cuts off the end, or changes up to 4 bytes. */
static void run_broken(const uint8_t *data, size_t bytes) {
  static uint8_t copy[MOST_BYTES];
  if (!bytes) return;
  memcpy(copy, data, bytes);
  const uint32_t changes = draw(5);
  for (uint32_t i = 0; i < changes; ++i) copy[draw((uint32_t)bytes)] = (uint8_t)draw(256);
  run(copy, changes ? bytes : draw((uint32_t)bytes));
}

int main(void) {
  static uint8_t data[MOST_BYTES];
  glob_t found;
  if (glob(FUZZ_CORPUS "/*", 0, NULL, &found) != 0) {
    fprintf(stderr, "no corpus at " FUZZ_CORPUS "\n");
    return 1;
  }
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    FILE *file = fopen(found.gl_pathv[i], "rb");
    if (!file) return 1;
    const size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    run(data, bytes);
    for (int k = 0; k < BROKEN; ++k) run_broken(data, bytes);
  }
  printf("%zu inputs, each with %d broken copies\n", found.gl_pathc, BROKEN);
  globfree(&found);
  return 0;
}
