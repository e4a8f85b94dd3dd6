/* A device that fails, one that records, and handles that are NULL: what the calls on a context then say. */
#include "api/api.h"
#include "core/check.h"
#include "core/devices.h"
#include "core/machine.h"
#include "core/outside.h"

#include <unistd.h>

static const char *why; /* the device's reason */
static int working;     /* calls that still pass */

static tigon_status result(tigon_queue *queue) {
  if (working-- > 0) return TIGON_OK;
  queue->reason = why;
  return TIGON_ERROR_DEVICE;
}
static tigon_status sync_fails(tigon_queue *queue) { return result(queue); }
static tigon_status alloc_fails(tigon_queue *queue, size_t bytes, void **memory) {
  (void)bytes, (void)memory;
  return result(queue);
}
static tigon_status copy_fails(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  if (working > 0) memcpy(to, from, bytes);
  return result(queue);
}
static tigon_status fill_fails(tigon_queue *queue, void *memory, int value, size_t bytes) {
  (void)memory, (void)value, (void)bytes;
  return result(queue);
}

static void test_failing_device(void **state) {
  tigon_context *c = *state;
  const tigon_backend *whole = c->queue.backend;
  tigon_backend broken = *whole;
  broken.sync = sync_fails, broken.alloc = alloc_fails, broken.copy = copy_fails, broken.fill = fill_fails;
  c->queue.backend = &broken;
  for (int with = 0; with < 2; ++with) {
    why = with ? "the cable is out" : NULL;
    const char *after = with ? ": the cable is out" : "";
    int32_t flag = 1;
    void *memory = &flag;
    working = 0;
    api_expect(c, tigon_context_sync(c), TIGON_ERROR_DEVICE, "context_sync: cpu failed%s", after);
    api_expect(c, tigon_alloc(c, 5, &memory), TIGON_ERROR_DEVICE, "alloc: 5 bytes are not there%s", after);
    assert_null(memory);
    api_expect(c, tigon_copy(c, &flag, &flag, 4), TIGON_ERROR_DEVICE, "copy: 4 bytes failed%s", after);
    api_expect(c, tigon_fill(c, &flag, 0, 4), TIGON_ERROR_DEVICE, "fill: 4 bytes failed%s", after);
    c->queue.error_flag = &flag; /* sync reads it, and clears it where it is raised */
    working = 1;
    api_expect(c, tigon_context_sync(c), TIGON_ERROR_DEVICE, "copy: 4 bytes failed%s", after);
    working = 2;
    api_expect(c, tigon_context_sync(c), TIGON_ERROR_DEVICE, "fill: 4 bytes failed%s", after);
    c->queue.error_flag = NULL;
  }
  c->queue.backend = whole;
}

static void test_raised_flag(void **state) {
  tigon_context *c = *state;
  int32_t flag = 1;
  c->queue.error_flag = &flag;
  api_expect(c, tigon_context_sync(c), TIGON_ERROR_INVALID,
             "context_sync: an op met an index or label that is out of range");
  assert_int_equal(flag, 0);
  assert_int_equal(tigon_context_sync(c), TIGON_OK);
  c->queue.error_flag = NULL;
}

static void ignore(void *to, const tigon_launch *launch) { (void)to, (void)launch; }

/* A recorder's memory is addresses that nobody has, and nothing is copied. */
static void test_recorder(void **state) {
  tigon_context *c = *state;
  void *first, *second;
  char to = 1;
  const char from = 2;
  c->queue.record = ignore;
  assert_int_equal(tigon_alloc(c, 1, &first), TIGON_OK);
  assert_int_equal(tigon_alloc(c, 1, &second), TIGON_OK);
  assert_int_equal((char *)second - (char *)first, 512);
  assert_int_equal(tigon_copy(c, &to, &from, 1), TIGON_OK);
  assert_int_equal(tigon_fill(c, &to, 3, 1), TIGON_OK);
  assert_int_equal(to, 1);
  assert_int_equal(tigon_context_sync(c), TIGON_OK);
  tigon_free(c, first);
  c->queue.record = NULL;
}

static void test_null(void **state) {
  tigon_context *c = *state;
  char byte = 0;
  void *memory = &byte;
  assert_string_equal(tigon_last_variant(NULL), "");
  assert_string_equal(tigon_context_device(NULL), "");
  assert_string_equal(tigon_context_gemm(NULL), "");
  assert_true(*tigon_context_gemm(c) != 0);
  assert_true(tigon_context_tflops(NULL, TIGON_BF16) == 0 && tigon_context_tflops(c, TIGON_BF16) == 0);
  tigon_free(NULL, memory);
  tigon_free(c, NULL);
  api_expect(NULL, tigon_alloc(NULL, 1, &memory), TIGON_ERROR_INVALID, "alloc: context or memory is NULL");
  api_expect(c, tigon_alloc(c, 1, NULL), TIGON_ERROR_INVALID, "alloc: context or memory is NULL");
  api_expect(NULL, tigon_copy(NULL, &byte, &byte, 1), TIGON_ERROR_INVALID, "copy: context, to or from is NULL");
  api_expect(c, tigon_copy(c, &byte, NULL, 1), TIGON_ERROR_INVALID, "copy: context, to or from is NULL");
  api_expect(NULL, tigon_fill(NULL, &byte, 0, 1), TIGON_ERROR_INVALID, "fill: context or memory is NULL");
  api_expect(c, tigon_fill(c, NULL, 0, 1), TIGON_ERROR_INVALID, "fill: context or memory is NULL");
  assert_int_equal(tigon_copy(c, NULL, NULL, 0), TIGON_OK);
  assert_int_equal(tigon_fill(c, NULL, 0, 0), TIGON_OK);
  assert_int_equal(tigon_supports(c, NULL, "fwd", TIGON_F32), 0);
  assert_int_equal(tigon_supports(c, "rms_norm", NULL, TIGON_F32), 0);
  assert_int_equal(tigon_supports(c, "rms_norm", "fwd", TIGON_DTYPE_NONE), 0);
}

/* What a front says of a slot that failed. */
static void test_slot_errors(void **state) {
  tigon_context *c = *state;
  size_t bytes = 7;
  for (int with = 0; with < 2; ++with) {
    c->queue.reason = with ? "C is odd" : NULL;
    const char *reason = with ? "C is odd" : "";
    const tigon_status faults[] = {TIGON_ERROR_SCRATCH, TIGON_ERROR_INVALID, TIGON_ERROR_UNSUPPORTED};
    for (int i = 0; i < 3; ++i)
      api_expect(c, tigon_front_done(c, c->kernels, &c->queue, "dyt_fwd", faults[i]), faults[i], "dyt_fwd: %s", reason);
    api_expect(c, tigon_front_done(c, c->kernels, &c->queue, "dyt_fwd", TIGON_ERROR_DEVICE), TIGON_ERROR_DEVICE,
               "dyt_fwd: the launch on cpu failed%s%s", with ? ": " : "", reason);
    api_expect(c, tigon_front_workspace(c, &c->queue, "dyt_bwd", -(int64_t)TIGON_ERROR_SCRATCH, &bytes),
               TIGON_ERROR_SCRATCH, "dyt_bwd: %s", reason);
  }
  assert_int_equal(bytes, 7);
  c->queue.reason = NULL;
}

/* ---- the lists ---- */

static void test_ends_of_lists(void **state) {
  tigon_context *c = *state;
  assert_null(tigon_backend_at(-1));
  assert_null(tigon_backend_at(1000));
  assert_null(tigon_backend_find("tpu"));
  assert_null(tigon_entry_at(-1));
  assert_null(tigon_entry_at(1000));
  assert_int_equal(tigon_entry_dtypes(c->kernels, -1), 0);
  assert_int_equal(tigon_entry_dtypes(c->kernels, 1000), 0);
  assert_null(tigon_entry_grade(c->kernels, -1));
  assert_null(tigon_entry_grade(c->kernels, 1000));
  assert_null(tigon_schema_at(1000));
  size_t bytes = 5;
  for (int i = -1; i <= 1000; i += 1001) {
    api_expect(c, tigon_schema_call(i, c, NULL), TIGON_ERROR_INVALID, "tigon_schema_call: there is no entry %d", i);
    api_expect(c, tigon_schema_workspace(i, c, NULL, &bytes, NULL), TIGON_ERROR_INVALID,
               "tigon_schema_workspace: there is no entry %d", i);
  }
  assert_int_equal(bytes, 5);
}

/* Has a table without one slot the op's forward? */
static bool has(const tigon_kernels *kernels, const char *op) {
  const tigon_entry *e;
  for (int i = 0; (e = tigon_entry_at(i)); ++i)
    if (strcmp(e->op, op) == 0) return tigon_entry_dtypes(kernels, i) != 0;
  fail_msg("no op %s", op);
  return false;
}

/* A composite is there only with all of the slots that it calls. */
static void test_composites(void **state) {
  const tigon_context *c = *state;
  static tigon_kernels fewer;
#define NEEDS(op, slot)          \
  fewer = *c->kernels;           \
  assert_true(has(&fewer, #op)); \
  fewer.slot.run = NULL;         \
  assert_false(has(&fewer, #op));
  NEEDS(fused_linear_cross_entropy, linear_fwd)
  NEEDS(fused_linear_cross_entropy, linear_bwd)
  NEEDS(fused_linear_cross_entropy, cross_entropy_fwd)
  NEEDS(fused_linear_policy, cross_entropy_bwd)
  NEEDS(fused_linear_policy, policy_loss_fwd)
  NEEDS(fused_linear_preference, cross_entropy_bwd)
  NEEDS(fused_linear_preference, preference_loss_fwd)
  NEEDS(fused_linear_divergence, divergence_fwd)
  NEEDS(fused_linear_divergence, divergence_bwd)
  NEEDS(fused_linear_topk_divergence, topk_divergence_fwd)
  NEEDS(fused_linear_topk_divergence, topk_divergence_bwd)
  NEEDS(fused_linear_topk_divergence, divergence_fwd)
  NEEDS(mlp, linear_fwd)
  NEEDS(mlp, linear_bwd)
  NEEDS(mlp, swiglu_bwd)
  NEEDS(mlp, geglu_bwd)
  NEEDS(rms_norm, rms_norm_fwd)
#undef NEEDS
}

/* A table without kernels has no entry; only those of attention can be exact. */
static void test_grades(void **state) {
  const tigon_context *c = *state;
  static const tigon_kernels none;
  tigon_kernels rounded = *c->kernels;
  const tigon_entry *e;
  rounded.attention_fwd.rounded = true;
  for (int i = 0; (e = tigon_entry_at(i)); ++i) {
    assert_int_equal(tigon_entry_dtypes(&none, i), 0);
    const bool grades = tigon_is_listed("attention_fwd attention_bwd", tigon_schema_at(i)->name);
    const char *own = tigon_entry_grade(&none, i), *grade = tigon_entry_grade(&rounded, i);
    assert_true(grades == (own != NULL));
    if (!own) continue;
    assert_string_equal(own, "exact");
    assert_string_equal(grade, strcmp(e->entry, "fwd") == 0 ? "rounded" : "exact");
  }
}

static void test_device_names(void **state) {
  (void)state;
  char name[TIGON_DEVICE_NAME];
  const tigon_backend *cpu = tigon_backend_find("cpu"), *sim = tigon_backend_find("ascend-sim");
  tigon_backend_device_name(cpu, 1, 2, name);
  assert_string_equal(name, "cpu:1");
  tigon_backend_device_name(cpu, 0, 1, name);
  assert_string_equal(name, "cpu");
  tigon_backend_device_name(sim, sim->find("910B4"), 1, name);
  assert_string_equal(name, "ascend-sim:910B4");
}

/* ---- the host ---- */

static void test_values_of_files(void **state) {
  (void)state;
  char value[16], path[] = "/tmp/tigon-device-XXXXXX";
  const int file = mkstemp(path);
  assert_true(file >= 0);
  FILE *to = fdopen(file, "w");
  fputs("model: no\nmodel name and more : no\nmodel name no colon\nmodel name\t: \t a CPU with a long name\nlast:x",
        to);
  fclose(to);
  tigon_value_of(path, "model name", value, sizeof value);
  assert_string_equal(value, "a CPU with a lo");
  tigon_value_of(path, "last", value, sizeof value);
  assert_string_equal(value, "x");
  tigon_value_of(path, "absent", value, sizeof value);
  assert_string_equal(value, "");
  unlink(path);
  tigon_value_of(path, "last", value, sizeof value);
  assert_string_equal(value, "");
}

/* The first library with all functions is taken, and looked for once. */
static void test_outside(void **state) {
  (void)state;
  static struct { double (*first)(double), (*second)(double); } api;
  static const tigon_symbol both[] = {{"cos", 0}, {"sin", sizeof(void (*)(void))}}, none[] = {{"tigon_no_such", 0}};
  static const char *const names[] = {"libtigon-no-such.so", "libm.so.6", NULL};
  tigon_outside good = {names, both, 2, &api, PTHREAD_MUTEX_INITIALIZER, false};
  tigon_outside lacking = {names, none, 1, &api, PTHREAD_MUTEX_INITIALIZER, false};
  assert_null(tigon_outside_api(&lacking));
  assert_null(tigon_outside_api(&lacking));
  assert_ptr_equal(tigon_outside_api(&good), &api);
  assert_true(good.ready && api.first(0) == 1 && api.second(0) == 0);
  assert_ptr_equal(tigon_outside_api(&good), &api);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_failing_device), cmocka_unit_test(test_raised_flag),
      cmocka_unit_test(test_recorder),       cmocka_unit_test(test_null),
      cmocka_unit_test(test_slot_errors),    cmocka_unit_test(test_ends_of_lists),
      cmocka_unit_test(test_composites),     cmocka_unit_test(test_values_of_files),
      cmocka_unit_test(test_grades),         cmocka_unit_test(test_device_names),
      cmocka_unit_test(test_outside),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
