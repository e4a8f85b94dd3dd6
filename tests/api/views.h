/* What programs over all descriptions share: the tensors of a call, one after the other, and their elements. */
#ifndef TIGON_TEST_VIEWS_H
#define TIGON_TEST_VIEWS_H

#include <math.h>
#include <string.h>

#include "calls.h"
#include "core/half.h"

/* The k-th tensor of a call, in the order of its fields and of a list's elements; x is NULL past the last one. */
typedef struct view {
  int k, element;
  const tigon_field *field;
  tigon_tensor *x;
} view;
static inline view view_at(call *c, int k) {
  int element = k;
  for (const tigon_field *field = c->schema->fields; field < c->schema->fields + c->schema->count; ++field) {
    if (field->kind != TIGON_FIELD_TENSOR) continue;
    if (element < call_values(field)) return (view){k, element, field, call_tensor(c, field, element)};
    element -= call_values(field);
  }
  return (view){0};
}
/* The same tensor of another call of the entry. */
static inline tigon_tensor *twin(call *c, const view *v) { return call_tensor(c, v->field, v->element); }

/* Choices with extents that go together, and a gap as large as most tensors. '&' without a letter is 1, 'r' are rows of
 * [B, T], 'f' half of D. */
static inline call_choices usual(tigon_dtype dtype, int leading) {
  static const char letters[] = "abstpkhdgncv1rf";
  static const int64_t extents[] = {2, 2, 2, 3, 7, 2, 4, 6, 3, 6, 75, 37, 1, 6, 3};
  call_choices how = {.dtype = dtype, .leading = leading, .gap = 1024, .extents = {1}};
  for (int i = 0; letters[i]; ++i) how.extents[(int)letters[i]] = extents[i];
  return how;
}

/* Is it where an index out of range is counted, so that the call is not refused? */
static inline bool is_error_flag(const tigon_field *field) {
  return field->flags & TIGON_FIELD_OUT && field->dtypes == 1u << TIGON_I32;
}

/* Is it one of the words, "x residual"? */
static inline bool has_word(const char *words, const char *word) {
  for (; words && *words; words += strcspn(words, " "), words += strspn(words, " "))
    if (strcspn(words, " ") == strlen(word) && strncmp(words, word, strlen(word)) == 0) return true;
  return false;
}

/* Elements; 0 where the tensor is absent. */
static inline int64_t count_of(const tigon_tensor *t) {
  int64_t count = t->ndim > 0;
  for (int d = 0; d < t->ndim; ++d) count *= t->shape[d];
  return count;
}
static inline int64_t size_of(const tigon_tensor *t) { return (int64_t)tigon_dtype_size(t->dtype); }

/* The i-th element in row-major order, in which strides that are all 0 lie. */
static inline char *element_of(const tigon_tensor *t, int64_t i) {
  int64_t at = 0, any = 0;
  const int64_t natural = i;
  for (int d = t->ndim - 1; d >= 0; --d) at += i % t->shape[d] * t->strides[d], i /= t->shape[d], any |= t->strides[d];
  return (char *)t->data + (any ? at : natural) * size_of(t);
}
static inline bool is_index(const tigon_tensor *t) { return t->dtype == TIGON_I32 || t->dtype == TIGON_I64; }
static inline double value_of(const tigon_tensor *t, int64_t i) {
  const char *at = element_of(t, i);
  return is_index(t) ? (double)tigon_load_index(at, 0, t->dtype) : tigon_load_f64(at, 0, t->dtype);
}

/* Numbers in [-1, 1) as f32 and as bf16, small ones as f16. */
static inline void fill_numbers(char *memory, size_t bytes) {
  uint32_t state = 7;
  for (size_t i = 0; i < bytes; i += 4) {
    state = state * 1664525u + 1013904223u;
    const float value = (float)(state >> 8) * 0x1p-23f - 1;
    uint32_t word;
    memcpy(&word, &value, 4);
    word = (word >> 16) * 0x10001u;
    memcpy(memory + i, &word, 4);
  }
}

#endif
