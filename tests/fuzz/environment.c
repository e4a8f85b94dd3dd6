/* The variables that the library reads: lines whose first byte chooses the variable, and whose rest is its value. On each device of this
 * machine a context opens or is refused in one sentence, and what opened still computes rms_norm. Kernels of the cache are looked
 * for and none is written, because a value may be any path. */
#include <math.h>
#include <tigon/tigon.h>

#include "fuzz/scratch.h"
#include "opencl/program.h"

enum { COLS = 40 };
static const char *const variables[] = {"TIGON_GEMM",
                                        "TIGON_CPU",
                                        "TIGON_ASCEND_PART",
                                        "TIGON_ASCEND_CORES",
                                        "TIGON_ASCEND_UB_BYTES",
                                        "TIGON_ASCEND_SIM_ORDER",
                                        "TIGON_ASCEND_SIM_NOISE",
                                        "TIGON_ASCEND_SIM_FLUSH",
                                        "TIGON_ASCEND_KERNELS",
                                        "TIGON_CUDA_ATTENTION",
                                        "TIGON_OPENCL_TRUST",
                                        "TIGON_OPENCL_CACHE",
                                        "XDG_CACHE_HOME",
                                        "HOME"};
enum { VARIABLES = sizeof variables / sizeof *variables };

static void set(const uint8_t *line, size_t bytes) {
  char value[2048];
  if (bytes < 1 || bytes > sizeof value) return;
  memcpy(value, line + 1, bytes - 1);
  value[bytes - 1] = 0;
  /* Other people's libraries are not what is tested. */
  if (strcmp(value, "openblas") != 0 && strcmp(value, "onednn") != 0) setenv(variables[line[0] % VARIABLES], value, 1);
}

static void run(tigon_context *context) {
  float x[COLS], y[COLS] = {0};
  double squares = 0;
  for (int i = 0; i < COLS; ++i) x[i] = (float)(i - 7) / 8, squares += (double)x[i] * (double)x[i] / COLS;
  const tigon_rms_norm_fwd_args args = {
      .x = tigon_tensor_2d(x, TIGON_F32, 1, COLS), .y = tigon_tensor_2d(y, TIGON_F32, 1, COLS), .eps = 1e-6};
  const tigon_status status = tigon_rms_norm_fwd(context, &args);
  if (status != TIGON_OK && !*tigon_last_error(context)) abort();
  for (int i = 0; status == TIGON_OK && i < COLS; ++i) /* the simulator's noise may be 1024 ULP */
    if (!(fabs((double)y[i] - (double)x[i] / sqrt(squares + 1e-6)) < 1e-2)) abort();
  if (status != TIGON_OK)
    for (int i = 0; i < COLS; ++i)
      if (y[i] != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const devices[] = {"cpu", "ref", "ascend-sim", "ascend-sim:tiny", "npu"};
  for (int i = 0; i < VARIABLES; ++i) unsetenv(variables[i]);
  setenv("TIGON_GEMM", "builtin", 1);
  while (size > 0) {
    const uint8_t *end = memchr(data, '\n', size);
    const size_t bytes = end ? (size_t)(end - data) : size, step = end ? bytes + 1 : bytes;
    set(data, bytes);
    data += step, size -= step;
  }
  for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) {
    tigon_context *context;
    if (tigon_context_create(&(tigon_context_desc){.device = devices[i], .threads = 1}, &context) == TIGON_OK) {
      run(context);
      tigon_context_destroy(context);
    } else if (!*tigon_last_error(NULL)) {
      abort();
    }
  }
  size_t bytes;
  free(opencl_cache_read("norm-f32", 1, &bytes));
  return 0;
}
