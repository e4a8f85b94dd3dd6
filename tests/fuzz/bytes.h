/* What a fuzzer's input gives, number by number: 0 when it is used up. */
#ifndef TEST_FUZZ_BYTES_H
#define TEST_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>

typedef struct bytes {
  const uint8_t *data;
  size_t left;
} bytes;

static inline uint64_t take(bytes *b, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count && b->left; ++i, ++b->data, --b->left) value = value << 8 | *b->data;
  return value;
}

#endif
