/* The bits of a case's outputs, as one number. */
#include <math.h>
#include <string.h>

#include "check/internal.h"
#include "core/context.h"

/* One more word of a sequence, whose order counts: the finalizer of splitmix64 (Steele et al. 2014). */
static uint64_t add_word(uint64_t sum, uint64_t word) {
  uint64_t x = (sum ^ word) + 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static uint64_t add_text(uint64_t sum, const char *text) {
  for (; *text; ++text) sum = add_word(sum, (uint8_t)*text);
  return add_word(sum, 0);
}

static bool is_float(tigon_dtype dtype) { return dtype == TIGON_F32 || dtype == TIGON_F16 || dtype == TIGON_BF16; }

uint64_t check_digest_tensor(uint64_t sum, const tigon_tensor *t) {
  const int64_t count = check_elements(t);
  const size_t size = tigon_dtype_size(t->dtype);
  const uint64_t nan = ~(uint64_t)0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t word = 0;
    memcpy(&word, (const char *)t->data + (size_t)check_offset(t, i) * size, size);
    sum = add_word(sum, is_float(t->dtype) && isnan(check_value(t, i)) ? nan : word);
  }
  return add_word(sum, (uint64_t)count);
}

/* Every case has a number of its own, which its label is in. The order of cases does not count in their sum. */
static uint64_t digest_of(const check_case *c, const check *k) {
  char label[128];
  check_case_label(c, label);
  uint64_t sum = add_text(add_text(0, tigon_dtype_name(c->dtype)), label);
  for (int i = 0; i < k->count; ++i) {
    const check_buffer *b = &k->buffers[i];
    if (b->role == CHECK_ROLE_OUT || b->role == CHECK_ROLE_INOUT) sum = check_digest_tensor(sum, &b->tensor);
  }
  return sum;
}

bool check_digest_case(const check_case *c, tigon_context *context, uint64_t seed, uint64_t *sum, char failure[512]) {
  check k;
  check_run(&k, c, context, seed, CHECK_END, NULL, NULL);
  *sum += digest_of(c, &k);
  memcpy(failure, k.failure, sizeof k.failure);
  check_release(&k);
  return !failure[0];
}
