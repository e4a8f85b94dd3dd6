#include <string.h>

#include "cuda/blaslt.h"

typedef struct choice {
  const char *device;
  size_t version;
  tigon_dtype dtype, c_dtype;
  bool a_transposed, b_transposed;
  int64_t m, n, k;
  int index;
} choice;

/* bench/gemm_algorithms.py measures and writes the list. */
static const choice choices[] = {
#define CHOICE(device, version, dtype, c_dtype, a_transposed, b_transposed, m, n, k, index) \
  {device, version, dtype, c_dtype, a_transposed, b_transposed, m, n, k, index},
#include "cuda/blaslt_choices.def"
#undef CHOICE
    {0}};

int cuda_blaslt_choice(const char *device, size_t version, const cuda_gemm *p) {
  for (const choice *c = choices; c->device; ++c)
    if (c->m == p->m && c->n == p->n && c->k == p->k && c->dtype == p->a.dtype && c->c_dtype == p->c_dtype &&
        c->a_transposed == p->a.transposed && c->b_transposed == p->b.transposed && c->version == version &&
        strcmp(c->device, device) == 0)
      return c->index;
  return 0;
}
