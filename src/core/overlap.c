/* Do strided tensors share memory? */
#include "core/check.h"

/* The dimensions longer than one, in rising order of stride; returns how many. */
static int by_stride(const tigon_tensor *t, int order[TIGON_MAX_DIMS]) {
  int dims = 0;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] <= 1) continue;
    int at = dims++;
    for (; at > 0 && t->strides[order[at - 1]] > t->strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  return dims;
}

bool tigon_overlaps_itself(const tigon_tensor *t) {
  int order[TIGON_MAX_DIMS];
  const int dims = by_stride(t, order);
  int64_t span = 1; /* span of the dimensions so far, in elements */
  for (int i = 0; i < dims; ++i) {
    if (t->strides[order[i]] < span) return true;
    span += (t->shape[order[i]] - 1) * t->strides[order[i]];
  }
  return false;
}

/* A view in bytes, its dimensions in rising order of stride. Cut after the first k of them, it is a pattern of span[k] bytes.
 * The pattern stands at sums of multiples of the strides further out, so at multiples of their greatest common divisor,
 * outer[k]. */
typedef struct view {
  uintptr_t low;
  int dims;
  int64_t span[TIGON_MAX_DIMS + 1], outer[TIGON_MAX_DIMS + 1];
} view;

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    const int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

static view view_of(const tigon_tensor *t) {
  const int64_t size = (int64_t)tigon_dtype_size(t->dtype);
  int order[TIGON_MAX_DIMS];
  const int dims = by_stride(t, order);
  view v = {.low = (uintptr_t)t->data, .dims = dims, .span = {size}};
  for (int i = 0; i < dims; ++i) v.span[i + 1] = v.span[i] + (t->shape[order[i]] - 1) * t->strides[order[i]] * size;
  for (int i = dims - 1; i >= 0; --i) v.outer[i] = gcd(t->strides[order[i]] * size, v.outer[i + 1]);
  return v;
}

/* Are a's pattern i and b's pattern j apart? Both repeat with period g, so their residues decide. */
static bool apart(const view *a, int i, const view *b, int j) {
  const int64_t g = gcd(a->outer[i], b->outer[j]);
  if (g == 0) return false; /* the whole views, whose ranges meet */
  const int64_t distance = b->low >= a->low ? (int64_t)((b->low - a->low) % (uintptr_t)g)
                                            : (g - (int64_t)((a->low - b->low) % (uintptr_t)g)) % g;
  return distance >= a->span[i] && distance + b->span[j] <= g;
}

bool tigon_overlap(const tigon_tensor *s, const tigon_tensor *t) {
  const view a = view_of(s), b = view_of(t);
  for (int i = 0; i <= a.dims; ++i)
    for (int j = 0; j <= b.dims; ++j)
      if (apart(&a, i, &b, j)) return false;
  return true;
}
