/* The host code of a GPU over a fake driver (fake/driver.c). Every launch of every case keeps to a GPU's limits, names an
 * existing kernel, stays on the caller's stream, and neither allocates nor waits. Every failing call of the driver gives its
 * sentence and leaves nothing behind. Skipped in a build without CUDA kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <tigon/tigon.h>

#include "check/internal.h"
#include "core/context.h"
#include "cuda/attention.h"
#include "cuda/images.h"

/* ---- the driver ---- */

static struct {
  void (*fail_at)(const char *call, int nth, int code);
  void (*machine)(int devices, int sm);
  void (*version)(int version);
  int (*alive)(void);
  void (*op_begins)(void *stream);
  const char *(*op_ends)(int *launches);
  void (*watch)(void (*seen)(const char *kernel, const unsigned shape[5], void **arguments));
  int (*get_current)(void **context);
  int (*stream_create)(void **stream, unsigned flags);
  int (*stream_destroy)(void *stream);
} fake;

static int setup(void **state) {
  (void)state;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return -1;
  *(void **)&fake.fail_at = dlsym(library, "fake_cuda_fail");
  *(void **)&fake.machine = dlsym(library, "fake_cuda_machine");
  *(void **)&fake.version = dlsym(library, "fake_cuda_version");
  *(void **)&fake.alive = dlsym(library, "fake_cuda_alive");
  *(void **)&fake.op_begins = dlsym(library, "fake_cuda_op_begins");
  *(void **)&fake.op_ends = dlsym(library, "fake_cuda_op_ends");
  *(void **)&fake.watch = dlsym(library, "fake_cuda_watch");
  *(void **)&fake.get_current = dlsym(library, "cuCtxGetCurrent");
  *(void **)&fake.stream_create = dlsym(library, "cuStreamCreate");
  *(void **)&fake.stream_destroy = dlsym(library, "cuStreamDestroy_v2");
  return fake.fail_at ? 0 : -1; /* NVIDIA's own has no such thing */
}

static tigon_context *open_cuda(const tigon_context_desc *desc) {
  tigon_context *context;
  if (tigon_context_create(desc, &context) != TIGON_OK) fail_msg("%s", tigon_last_error(NULL));
  return context;
}

static void refuses(const char *device, tigon_status status, const char *sentence) {
  tigon_context *context = NULL;
  const tigon_context_desc desc = {.device = device};
  const int before = fake.alive();
  assert_int_equal(tigon_context_create(&desc, &context), status);
  assert_null(context);
  assert_string_equal(tigon_last_error(NULL), sentence);
  assert_int_equal(fake.alive(), before);
}

/* ---- opening ---- */

/* Comes first: the driver is initialised once a process. */
static void test_not_there(void **state) {
  (void)state;
  fake.fail_at("cuInit", 1, 999);
  refuses("cuda", TIGON_ERROR_DEVICE, "context: device cuda is not there: cuInit returned 999 (CUDA_ERROR_UNKNOWN)");
  fake.fail_at("cuDeviceGetCount", 1, 999);
  refuses("cuda", TIGON_ERROR_DEVICE, "context: device cuda is not there: cuDeviceGetCount returned 999");
  fake.machine(0, 90);
  refuses("cuda", TIGON_ERROR_DEVICE, "context: device cuda is not there: the driver finds no GPU");
  fake.machine(2, 90);
  char sentence[200];
  snprintf(
      sentence, sizeof sentence,
      "context: device cuda is not there: its driver is one for CUDA %d.8, must be for CUDA %d or later, whose nvcc "
      "compiled the kernels",
      cuda_images_major() - 1, cuda_images_major());
  fake.version((cuda_images_major() - 1) * 1000 + 80);
  refuses("cuda", TIGON_ERROR_DEVICE, sentence);
  fake.version(cuda_images_major() * 1000);
  refuses("cuda:2", TIGON_ERROR_DEVICE, "context: device is \"cuda:2\", must be below cuda:2");
}

/* A GPU takes machine code of its own major version, and not of a later minor one; else PTX. */
static void test_target(void **state) {
  (void)state;
  static const cuda_target wheel[] = {{80, false}, {90, false}, {100, false}, {120, false}, {100, true}};
  static const cuda_target some[] = {{86, false}, {80, true}, {89, false}, {90, true}};
  static const struct {
    const cuda_target *of;
    int count, sm, taken;
    bool ptx;
  } cases[] = {{wheel, 5, 75, 0, false},    {wheel, 5, 80, 80, false},   {wheel, 5, 89, 80, false},
               {wheel, 5, 90, 90, false},   {wheel, 5, 103, 100, false}, {wheel, 5, 110, 100, true},
               {wheel, 5, 121, 120, false}, {wheel, 5, 130, 100, true},  {some, 4, 80, 80, true},
               {some, 4, 87, 86, false},    {some, 4, 89, 89, false},    {some, 4, 90, 90, true},
               {some, 4, 75, 0, false},     {wheel, 0, 90, 0, false},    {wheel, 1, 90, 0, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const cuda_target *target = cuda_target_for(cases[i].of, cases[i].count, cases[i].sm);
    assert_int_equal(target ? target->sm : 0, cases[i].taken);
    assert_int_equal(target && target->ptx, cases[i].ptx);
  }
  char sentence[200];
  snprintf(sentence, sizeof sentence,
           "context: device cuda did not open: this library has no kernels for compute capability 7.5: its build had "
           "TIGON_CUDA_ARCHITECTURES=%s",
           cuda_images_targets());
  fake.machine(2, 75);
  refuses("cuda", TIGON_ERROR_DEVICE, sentence);
  fake.machine(2, 90);
}

static void test_does_not_open(void **state) {
  (void)state;
  static const struct {
    const char *call;
    int nth;
  } calls[] = {{"cuDeviceGet", 1},        {"cuDevicePrimaryCtxRetain", 1}, {"cuCtxPushCurrent", 1},
               {"cuLibraryLoadData", 1},  {"cuStreamCreate", 1},           {"cuMemsetD8Async", 1},
               {"cuStreamSynchronize", 1}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "context: device cuda did not open: %s returned 999 (CUDA_ERROR_UNKNOWN: a failure)", calls[i].call);
    fake.fail_at(calls[i].call, calls[i].nth, 999);
    refuses("cuda", TIGON_ERROR_DEVICE, sentence);
  }
  for (int nth = 1; nth <= 2; ++nth) {
    fake.fail_at("cuMemAlloc", nth, 2);
    refuses("cuda:1", TIGON_ERROR_OUT_OF_MEMORY,
            "context: device cuda:1 did not open: cuMemAlloc returned 2 (CUDA_ERROR_OUT_OF_MEMORY: out of memory)");
  }
}

/* A GPU that is there is what NULL means; its stream stays the caller's, and so does the current context. */
static void test_leaves_the_caller_alone(void **state) {
  (void)state;
  void *stream = NULL, *current = NULL;
  assert_int_equal(fake.stream_create(&stream, 0), 0);
  tigon_context *context = open_cuda(&(tigon_context_desc){.stream = stream});
  assert_string_equal(tigon_context_device(context), "cuda");
  assert_string_equal(context->device->name, "Fake GPU 0");
  assert_int_equal(context->device->cores, 132);
  assert_int_equal(tigon_context_sync(context), TIGON_OK);
  assert_int_equal(fake.get_current(&current), 0);
  assert_null(current);
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 1);
  assert_int_equal(fake.stream_destroy(stream), 0);
}

/* ---- launches ---- */

tigon_status __real_check_entry_call(int entry, tigon_context *context, const void *args);
tigon_status __wrap_check_entry_call(int entry, tigon_context *context, const void *args);
int __real_cuda_images_target(int sm);
int __wrap_cuda_images_target(int sm);

static int calls, launches;
static bool claims; /* to have code for every GPU */

int __wrap_cuda_images_target(int sm) { return claims ? sm : __real_cuda_images_target(sm); }

/* In place of the harness's: what happens in here happens within the op. */
tigon_status __wrap_check_entry_call(int entry, tigon_context *context, const void *args) {
  int of_call = 0;
  fake.op_begins(context->queue.stream);
  const tigon_status status = __real_check_entry_call(entry, context, args);
  const char *wrong = fake.op_ends(&of_call);
  if (wrong) fail_msg("%s_%s: %s", tigon_entry_at(entry)->op, tigon_entry_at(entry)->entry, wrong);
  calls += 1;
  launches += of_call;
  return status;
}

static void run_cases(tigon_context *context, int entry, tigon_dtype dtype) {
  check_case c;
  for (int i = 0; check_case_at(entry, dtype, context->kernels->tile, i, &c); ++i) {
    check k;
    check_run(&k, &c, context, 1, 0, NULL, NULL);
    if (k.status != TIGON_OK) fail_msg("%s", k.failure);
    check_release(&k);
  }
}

/* A machine whose blocks cannot share rows, one whose blocks can, and one that runs PTX where the build has it. The attention of the
 * second rounds its weights. f16 has bf16's launches, and runs on the second alone. */
static void test_launches(void **state) {
  (void)state;
  static const int machines[] = {80, 90, 120};
  for (size_t i = 0; i < sizeof machines / sizeof *machines; ++i) {
    const int sm = machines[i];
    claims = sm != 120;
    if (!claims && !cuda_images_target(sm)) continue;
    fake.machine(2, sm);
    setenv("TIGON_CUDA_ATTENTION", sm == 90 ? "rounded" : "exact", 1);
    void *stream = NULL;
    assert_int_equal(fake.stream_create(&stream, 0), 0);
    tigon_context *context = open_cuda(&(tigon_context_desc){.device = "cuda:1", .stream = stream});
    for (int e = 0; tigon_entry_at(e); ++e)
      for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype) {
        if (dtype == TIGON_F16 && sm != 90) continue;
        if (tigon_entry_dtypes(context->kernels, e) & TIGON_BIT(dtype)) run_cases(context, e, dtype);
      }
    tigon_context_destroy(context);
    assert_int_equal(fake.stream_destroy(stream), 0);
    assert_int_equal(fake.alive(), 0);
  }
  claims = false;
  unsetenv("TIGON_CUDA_ATTENTION");
  assert_true(calls > 1000 && launches > calls / 2);
  fake.machine(2, 90);
}

/* The launches of a run, a line each. `wide` launches of attention load 16 bytes at a time, which an argument tells them. */
static FILE *trace;
static int wide_launches;

static void note(const char *kernel, const unsigned shape[5], void **arguments) {
  const bool walks = strstr(kernel, "attention") && !strstr(kernel, "delta") && !strstr(kernel, "sinks") &&
                     !strstr(kernel, "wgmma"); /* whose rows are always wide */
  const bool wide = walks && ((const attention_walk *)arguments[1])->wide;
  fprintf(trace, "%s %ux%u %u %u %u%s\n", kernel, shape[0], shape[1], shape[2], shape[3], shape[4],
          wide ? " wide" : "");
  wide_launches += wide;
}

/* The caller frees what it returns. */
static char *traced(tigon_context *context, const check_case *c, check_place place) {
  check k;
  char *text;
  size_t bytes;
  trace = open_memstream(&text, &bytes);
  assert_non_null(trace);
  check_run(&k, c, context, 1, place, NULL, NULL);
  fclose(trace);
  if (k.status != TIGON_OK) fail_msg("%s", k.failure);
  check_release(&k);
  return text;
}

/* A batch of one and every other extent of 1 have the kernels that they have with natural strides, whatever their strides are. What
 * f16's strides may choose is the size of a load, as bf16's do. */
static void test_strides_of_one(void **state) {
  (void)state;
  tigon_context *context = open_cuda(&(tigon_context_desc){.device = "cuda"});
  fake.watch(note);
  for (int e = 0; tigon_entry_at(e); ++e)
    for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_BF16; dtype += TIGON_BF16 - TIGON_F32) {
      check_case c;
      for (int i = 0; check_case_at(e, dtype, context->kernels->tile, i, &c); ++i) {
        char *natural = traced(context, &c, CHECK_END), *strange = traced(context, &c, CHECK_STRANGE);
        assert_string_equal(strange, natural);
        free(natural);
        free(strange);
      }
    }
  fake.watch(NULL);
  tigon_context_destroy(context);
  assert_true(wide_launches > 0);
}

static int launches_of(tigon_context *context, tigon_status (*call)(tigon_context *context, const void *args),
                       const void *args) {
  int count = 0;
  fake.op_begins(context->queue.stream);
  const tigon_status status = call(context, args);
  const char *wrong = fake.op_ends(&count);
  if (status != TIGON_OK || wrong) fail_msg("%s", wrong ? wrong : tigon_last_error(context));
  return count;
}
static tigon_status forward(tigon_context *context, const void *args) { return tigon_cross_entropy_fwd(context, args); }
static tigon_status backward(tigon_context *context, const void *args) {
  return tigon_cross_entropy_bwd(context, args);
}

/* What a call on few rows takes is its launches: a loss has one. Of many rows the sums over all rows have their own. */
static void test_launches_of_a_loss(void **state) {
  (void)state;
  enum { VOCAB = 64, FEW = 256, PART = 1 << 16 }; /* bytes of a tensor, and more */
  static const struct {
    int64_t rows;
    int loss, both, gradient;
  } cases[] = {{0, 1, 1, 0}, {1, 1, 1, 1}, {FEW, 1, 1, 1}, {FEW + 1, 2, 3, 2}};
  void *memory = NULL;
  tigon_context *context = open_cuda(&(tigon_context_desc){.device = "cuda"});
  assert_int_equal(tigon_alloc(context, 6 * PART, &memory), TIGON_OK);
  char *const at = memory;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const int64_t rows = cases[i].rows;
    const tigon_tensor logits = tigon_tensor_2d(at, TIGON_BF16, rows, VOCAB);
    const tigon_tensor dlogits = tigon_tensor_2d(at + PART, TIGON_BF16, rows, VOCAB);
    const tigon_tensor labels = tigon_tensor_1d(at + 2 * PART, TIGON_I64, rows);
    tigon_cross_entropy_fwd_args fwd = {.logits = logits,
                                        .labels = labels,
                                        .out.loss = tigon_tensor_1d(at + 3 * PART, TIGON_F32, 1),
                                        .workspace = at + 4 * PART,
                                        .workspace_bytes = PART};
    assert_int_equal(launches_of(context, forward, &fwd), cases[i].loss);
    fwd.dlogits = dlogits;
    assert_int_equal(launches_of(context, forward, &fwd), cases[i].both);
    const tigon_cross_entropy_bwd_args bwd = {.logits = logits,
                                              .labels = labels,
                                              .lse = tigon_tensor_1d(at + 5 * PART, TIGON_F32, rows),
                                              .dlogits = dlogits,
                                              .workspace = at + 4 * PART,
                                              .workspace_bytes = PART};
    assert_int_equal(launches_of(context, backward, &bwd), cases[i].gradient);
  }
  tigon_free(context, memory);
  tigon_context_destroy(context);
}

static tigon_status policy(tigon_context *context, const void *args) { return tigon_policy_loss_fwd(context, args); }

/* One, though a slope of some kinds depends on how many tokens of all sequences count. */
static void test_launches_of_a_policy(void **state) {
  (void)state;
  enum { TOKENS = 4096, SEQUENCES = 2, PART = TOKENS * 4 }; /* bytes of a tensor, and more */
  void *memory = NULL;
  tigon_context *context = open_cuda(&(tigon_context_desc){.device = "cuda"});
  assert_int_equal(tigon_alloc(context, 7 * PART, &memory), TIGON_OK);
  char *const at = memory;
  for (int kind = TIGON_POLICY_GRPO; kind <= TIGON_POLICY_VESPO; ++kind) {
    const tigon_policy_loss_fwd_args args = {.logprob = tigon_tensor_1d(at, TIGON_F32, TOKENS),
                                             .old = tigon_tensor_1d(at + PART, TIGON_F32, TOKENS),
                                             .mask = tigon_tensor_1d(at + 2 * PART, TIGON_I32, TOKENS),
                                             .segments = tigon_tensor_1d(at + 3 * PART, TIGON_I64, SEQUENCES + 1),
                                             .advantage = tigon_tensor_1d(at + 4 * PART, TIGON_F32, SEQUENCES),
                                             .loss = tigon_tensor_1d(at + 5 * PART, TIGON_F32, 1),
                                             .dlogprob = tigon_tensor_1d(at + 6 * PART, TIGON_F32, TOKENS),
                                             .options = {.kind = kind, .max_length = TOKENS}};
    assert_int_equal(launches_of(context, policy, &args), 1);
  }
  tigon_free(context, memory);
  tigon_context_destroy(context);
}

static tigon_status norm_backward(tigon_context *context, const void *args) {
  return tigon_rms_norm_bwd(context, args);
}

/* A gradient of few rows has one launch, its sums over them included, where blocks can share rows. */
static void test_launches_of_a_norm(void **state) {
  (void)state;
  enum { COLS = 4096, MOST = 1024, PART = MOST * COLS * 2 }; /* bytes of a tensor */
  static const struct {
    int sm;
    int64_t rows;
    int launches;
  } cases[] = {{90, 1, 1}, {90, 16, 1}, {90, 100, 1}, {90, MOST, 2}, {80, 1, 1}, {80, 16, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const int64_t rows = cases[i].rows;
    void *memory = NULL;
    fake.machine(1, cases[i].sm);
    claims = true;
    tigon_context *context = open_cuda(&(tigon_context_desc){.device = "cuda"});
    assert_int_equal(tigon_alloc(context, 6 * PART, &memory), TIGON_OK);
    char *const at = memory;
    const tigon_rms_norm_bwd_args args = {.dy = tigon_tensor_2d(at, TIGON_BF16, rows, COLS),
                                          .x = tigon_tensor_2d(at + PART, TIGON_BF16, rows, COLS),
                                          .rstd = tigon_tensor_1d(at + 2 * PART, TIGON_F32, rows),
                                          .dx = tigon_tensor_2d(at + 3 * PART, TIGON_BF16, rows, COLS),
                                          .dw = tigon_tensor_1d(at + 4 * PART, TIGON_F32, COLS),
                                          .workspace = at + 5 * PART,
                                          .workspace_bytes = PART};
    assert_int_equal(launches_of(context, norm_backward, &args), cases[i].launches);
    tigon_free(context, memory);
    tigon_context_destroy(context);
  }
  claims = false;
  fake.machine(2, 90);
}

/* ---- failures at work ---- */

static void fails(tigon_context *context, tigon_status got, tigon_status status, const char *sentence) {
  assert_string_equal(tigon_last_error(context), sentence);
  assert_int_equal(got, status);
}

static void test_failures_at_work(void **state) {
  (void)state;
  static float y[1024];
  void *memory = NULL;
  tigon_context *context = open_cuda(&(tigon_context_desc){.device = "cuda"});
  fake.fail_at("cuMemAlloc", 1, 2);
  fails(context, tigon_alloc(context, 4096, &memory), TIGON_ERROR_OUT_OF_MEMORY,
        "alloc: 4096 bytes are not there: cuMemAlloc returned 2 (CUDA_ERROR_OUT_OF_MEMORY: out of memory)");
  assert_null(memory);
  assert_int_equal(tigon_alloc(context, 4096, &memory), TIGON_OK);
  fake.fail_at("cuMemcpyAsync", 1, 700);
  fails(context, tigon_copy(context, memory, y, 4096), TIGON_ERROR_DEVICE,
        "copy: 4096 bytes failed: cuMemcpyAsync returned 700 (CUDA_ERROR_UNKNOWN: a failure)");
  fake.fail_at("cuStreamSynchronize", 1, 700);
  fails(context, tigon_context_sync(context), TIGON_ERROR_DEVICE,
        "context_sync: cuda failed: cuStreamSynchronize returned 700 (CUDA_ERROR_UNKNOWN: a failure)");
  fake.fail_at("cuMemsetD8Async", 1, 700);
  fails(context, tigon_fill(context, memory, 0, 4096), TIGON_ERROR_DEVICE,
        "fill: 4096 bytes failed: cuMemsetD8Async returned 700 (CUDA_ERROR_UNKNOWN: a failure)");
  const tigon_rms_norm_fwd_args args = {.x = tigon_tensor_2d(memory, TIGON_F32, 4, 100),
                                        .y = tigon_tensor_2d((char *)memory + 2048, TIGON_F32, 4, 100)};
  fake.fail_at("cuLaunchKernelEx", 1, 2);
  const tigon_status status = tigon_rms_norm_fwd(context, &args);
  assert_int_equal(status, TIGON_ERROR_OUT_OF_MEMORY);
  assert_non_null(strstr(tigon_last_error(context), "rms_norm_fwd: the launch on cuda failed: rms_norm_fwd_"));
  assert_int_equal(tigon_rms_norm_fwd(context, &args), TIGON_OK);
  double seconds = 0;
  const tigon_backend *backend = context->queue.backend;
  assert_int_equal(backend->time(&context->queue, true, NULL), TIGON_OK);
  assert_int_equal(backend->time(&context->queue, false, &seconds), TIGON_OK);
  assert_true(seconds > 1.4e-3 && seconds < 1.6e-3);
  tigon_free(context, memory);
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 0);
}

/* For a build with Hopper GPUs. Another build has no maps. */
static void test_a_map_fails(void **state) {
  (void)state;
  enum { TOKENS = 4, CHOICES = 2, EXPERTS = 2, WIDTH = 64, PART = 1 << 16 };
  void *memory = NULL;
  tigon_context *context = open_cuda(&(tigon_context_desc){.device = "cuda"});
  assert_int_equal(tigon_alloc(context, 8 * PART, &memory), TIGON_OK);
  char *const at = memory;
  tigon_fused_moe_fwd_args args = {.x = tigon_tensor_2d(at, TIGON_BF16, TOKENS, WIDTH),
                                   .idx = tigon_tensor_2d(at + PART, TIGON_I64, TOKENS, CHOICES),
                                   .w = tigon_tensor_2d(at + 2 * PART, TIGON_F32, TOKENS, CHOICES),
                                   .gate_up = tigon_tensor_3d(at + 3 * PART, TIGON_BF16, EXPERTS, 2 * WIDTH, WIDTH),
                                   .down = tigon_tensor_3d(at + 4 * PART, TIGON_BF16, EXPERTS, WIDTH, WIDTH),
                                   .y = tigon_tensor_2d(at + 5 * PART, TIGON_BF16, TOKENS, WIDTH),
                                   .workspace = at + 6 * PART};
  assert_int_equal(tigon_fused_moe_fwd_workspace(context, &args, NULL, &args.workspace_bytes), TIGON_OK);
  assert_true(args.workspace_bytes <= 2 * PART);
  fake.fail_at("cuTensorMapEncodeTiled", 1, 1);
  const tigon_status status = tigon_fused_moe_fwd(context, &args);
  if (status != TIGON_OK)
    fails(
        context, status, TIGON_ERROR_DEVICE,
        "fused_moe_fwd: the launch on cuda failed: cuTensorMapEncodeTiled returned 1 (CUDA_ERROR_UNKNOWN: a failure)");
  fake.fail_at(NULL, 0, 0);
  assert_int_equal(tigon_fused_moe_fwd(context, &args), TIGON_OK);
  tigon_free(context, memory);
  tigon_context_destroy(context);
}

int main(void) {
  enum { SKIPPED = 77 };
  if (!cuda_images_built()) return puts("skipped: this build has no CUDA kernels"), SKIPPED;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_not_there),          cmocka_unit_test(test_target),
      cmocka_unit_test(test_does_not_open),      cmocka_unit_test(test_leaves_the_caller_alone),
      cmocka_unit_test(test_launches),           cmocka_unit_test(test_strides_of_one),
      cmocka_unit_test(test_launches_of_a_loss), cmocka_unit_test(test_launches_of_a_policy),
      cmocka_unit_test(test_launches_of_a_norm), cmocka_unit_test(test_failures_at_work),
      cmocka_unit_test(test_a_map_fails),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
