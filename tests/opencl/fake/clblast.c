/* A CLBlast of ours, over buffers of the driver of ours. With the word "blunder" in FAKE_OPENCL it leaves out the last term. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "opencl/driver.h"

enum { INVALID_VALUE = -30, ROW_MAJOR = 101, NO_TRANSPOSE = 111 };

static int calls;
int fake_clblast_calls(void) { return calls; }

clblast_sgemm CLBlastSgemm;
int CLBlastSgemm(int layout, int transpose_a, int transpose_b, size_t m, size_t n, size_t k, float alpha, const void *a,
                 size_t a_offset, size_t a_pitch, const void *b, size_t b_offset, size_t b_pitch, float beta, void *c,
                 size_t c_offset, size_t c_pitch, void **queue, void **event) {
  const char *words = getenv("FAKE_OPENCL");
  const bool plain_a = transpose_a == NO_TRANSPOSE, plain_b = transpose_b == NO_TRANSPOSE;
  if (layout != ROW_MAJOR || m == 0 || n == 0 || k == 0 || a_pitch < (plain_a ? k : m) || b_pitch < (plain_b ? n : k) ||
      c_pitch < n || !queue || !*queue || event)
    return INVALID_VALUE;
  const float *x = (const float *)fake_opencl_data((void *)a) + a_offset;
  const float *w = (const float *)fake_opencl_data((void *)b) + b_offset;
  float *y = (float *)fake_opencl_data(c) + c_offset;
  ++calls;
  if (words && strstr(words, "blunder")) --k;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      float sum = 0;
      for (size_t t = 0; t < k; ++t)
        sum += x[plain_a ? i * a_pitch + t : t * a_pitch + i] * w[plain_b ? t * b_pitch + j : j * b_pitch + t];
      y[i * c_pitch + j] = alpha * sum + (beta == 0 ? 0 : beta * y[i * c_pitch + j]);
    }
  return 0;
}
