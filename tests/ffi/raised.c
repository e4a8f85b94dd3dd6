/* Errors that a runtime of TVM-FFI, here this file, gets to raise: the kind of each status, with the library's sentence. */
#include "../api/api.h"
#include "core/context.h"
#include "faults.h"
#include "ffi/ffi.h"

static char kind[32], sentence[512];
static int streams;
void TVMFFIErrorSetRaisedFromCStr(const char *is, const char *message) {
  snprintf(kind, sizeof kind, "%s", is);
  snprintf(sentence, sizeof sentence, "%s", message);
}
void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) {
  assert_true(device_type == kDLCUDA && device_id == 900);
  ++streams;
  return NULL;
}

static int entry_of(const char *name) {
  int entry = 0;
  while (strcmp(tigon_schema_at(entry)->name, name) != 0) ++entry;
  return entry;
}

enum { ROWS = 4, COLS = 8 };
static float x[ROWS * COLS + 1], w[COLS], dx[ROWS * COLS], rstd[ROWS], dw[COLS];
static int64_t shape[2] = {ROWS, COLS};
static DLTensor views[] = {{x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0},
                           {w, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape + 1, NULL, 0},
                           {rstd, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0},
                           {dw, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape + 1, NULL, 0},
                           {x + 1, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0},
                           {dx, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}};
static ffi_value tensor(int i) { return (ffi_value){.type = FFI_DLTENSOR, .pointer = &views[i]}; }

static void raises(const char *entry, const ffi_value *values, int count, const char *is, const char *message) {
  *kind = *sentence = 0;
  assert_int_equal(tigon_ffi_call(entry_of(entry), FFI_CALL, values, count, NULL), -1);
  assert_string_equal(kind, is);
  if (message) assert_string_equal(sentence, message);
  assert_string_equal(sentence, tigon_last_error(NULL));
}

static void test_kinds(void **state) {
  (void)state;
  const ffi_value good[] = {tensor(0), tensor(1), tensor(5)}, same[] = {tensor(0), tensor(1), tensor(4)},
                  absent[] = {tensor(0)};
  raises("rms_norm_fwd", absent, 1, "ValueError", "rms_norm_fwd: y is absent");
  raises("rms_norm_fwd", same, 3, "ValueError", "rms_norm_fwd: y overlaps x in part, must be the same view or apart");
  const ffi_value backward[] = {tensor(0), tensor(0), tensor(1), tensor(2), tensor(5), tensor(3)};
  raises("rms_norm_bwd", backward, 6, "ValueError", "rms_norm_bwd: workspace is NULL, must have 128 bytes");
  views[1].dtype.bits = 16;
  raises("rms_norm_fwd", good, 3, "TypeError", "rms_norm_fwd: w.dtype is f16, must be f32 (x.dtype)");
  views[1].dtype.bits = 32;
  const ffi_value text[] = {{.type = FFI_STRING}};
  raises("rms_norm_fwd", text, 1, "TypeError", "rms_norm_fwd: x is a string, must be a tensor or None");
  views[0].device.device_type = kDLExtDev;
  raises("rms_norm_fwd", same, 1, "NotImplementedError",
         "rms_norm_fwd: x is on a device of DLPack's type 12, must be on cpu, cuda or opencl");
  views[0].device = (DLDevice){kDLCUDA, 900};
  raises("rms_norm_fwd", same, 1, "RuntimeError", NULL);
  assert_int_equal(streams, 1);
  views[0].device = (DLDevice){kDLCPU, 0};
}

/* A context whose device has no kernels is the next that a call takes. */
static void test_no_kernel(void **state) {
  (void)state;
  static tigon_kernels none = {.variant = "none"};
  const DLDevice cpu = {kDLCPU, 0};
  tigon_context *context = NULL;
  assert_int_equal(tigon_ffi_context_take(cpu, &context), TIGON_OK);
  const tigon_kernels *all = context->kernels;
  context->kernels = &none;
  tigon_ffi_context_give(context);
  const ffi_value values[] = {tensor(0), tensor(1), tensor(0)};
  raises("rms_norm_fwd", values, 3, "NotImplementedError", "rms_norm_fwd: cpu (none) has no kernel for f32");
  assert_int_equal(tigon_ffi_context_take(cpu, &context), TIGON_OK);
  context->kernels = all;
  tigon_ffi_context_give(context);
}

static void test_memory(void **state) {
  (void)state;
  const ffi_value step[] = {tensor(0)};
  faults_begin("memory", 1, 0, 12);
  raises("adamw_clip", step, 1, "MemoryError", "adamw_clip: out of memory");
  assert_int_equal(faults_end(), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_no_kernel),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
