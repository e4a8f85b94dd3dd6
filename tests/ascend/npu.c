/* The host path of an NPU over a runtime of ours (fake/acl.c): results, streams, the caller's device, and every call's failure
 * with its sentence and nothing left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <tigon/tigon.h>

#include "core/context.h"

/* ---- the runtime ---- */

static bool
    old; /* libascendcl.so, which loads kernels from memory alone, takes arguments as lists of their own, and has no
                    library of operators beside it */

static struct {
  void (*fail_at)(const char *call, int nth, int code);
  void (*machine)(uint32_t devices, const char *soc);
  void (*device)(int64_t vector_cores, int64_t ub_bytes);
  void (*cores)(bool needs, bool knows);
  const char *(*loaded)(void);
  int (*alive)(void);
  int (*set_device)(int32_t device);
  int (*get_device)(int32_t *device);
  int (*create_stream)(void **stream);
  int (*destroy_stream)(void *stream);
} fake;

static int setup(void **state) {
  (void)state;
  void *library = dlopen("libacl_rt.so", RTLD_NOW | RTLD_LOCAL);
  old = !library;
  if (old) library = dlopen("libascendcl.so", RTLD_NOW | RTLD_LOCAL);
  if (!library) return -1;
  *(void **)&fake.fail_at = dlsym(library, "fake_acl_fail");
  *(void **)&fake.machine = dlsym(library, "fake_acl_machine");
  *(void **)&fake.device = dlsym(library, "fake_acl_device");
  *(void **)&fake.cores = dlsym(library, "fake_acl_cores");
  *(void **)&fake.loaded = dlsym(library, "fake_acl_loaded");
  *(void **)&fake.alive = dlsym(library, "fake_acl_alive");
  *(void **)&fake.set_device = dlsym(library, "aclrtSetDevice");
  *(void **)&fake.get_device = dlsym(library, "aclrtGetDevice");
  *(void **)&fake.create_stream = dlsym(library, "aclrtCreateStream");
  *(void **)&fake.destroy_stream = dlsym(library, "aclrtDestroyStream");
  return fake.fail_at ? 0 : -1; /* CANN's own has no such thing */
}

static int current(void) {
  int32_t device = -1;
  fake.get_device(&device);
  return device;
}

static tigon_context *open_npu(const tigon_context_desc *desc) {
  tigon_context *context;
  if (tigon_context_create(desc, &context) != TIGON_OK) fail_msg("%s", tigon_last_error(NULL));
  return context;
}

/* npu does not open: status and sentence, and all is given back. */
static void refuses(const char *device, tigon_status status, const char *sentence) {
  tigon_context *context = NULL;
  const tigon_context_desc desc = {.device = device};
  assert_int_equal(tigon_context_create(&desc, &context), status);
  assert_null(context);
  assert_string_equal(tigon_last_error(NULL), sentence);
  assert_int_equal(fake.alive(), 0);
}

/* ---- not there ---- */

/* Comes first: the runtime is initialised once a process. */
static void test_not_there(void **state) {
  (void)state;
  fake.fail_at("aclInit", 1, 500000);
  refuses("npu", TIGON_ERROR_DEVICE,
          "context: device npu is not there: aclInit returned 500000 (ACL_ERROR_INTERNAL_ERROR)");
  fake.fail_at("aclrtGetDeviceCount", 1, 507033);
  refuses("npu", TIGON_ERROR_DEVICE,
          "context: device npu is not there: aclrtGetDeviceCount returned 507033 (ACL_ERROR_RT_DEV_SETUP_ERROR)");
  fake.machine(0, "Ascend910B4");
  refuses("npu", TIGON_ERROR_DEVICE,
          old ? "context: device npu is not there: libascendcl.so finds none"
              : "context: device npu is not there: libacl_rt.so finds none");
  fake.machine(2, "Ascend910B4");
  refuses("npu:2", TIGON_ERROR_DEVICE, "context: device is \"npu:2\", must be below npu:2");
  char *kernels = strdup(getenv("TIGON_ASCEND_KERNELS"));
  unsetenv("TIGON_ASCEND_KERNELS");
  refuses("npu", TIGON_ERROR_DEVICE,
          "context: device npu is not there: there is one, but TIGON_ASCEND_KERNELS does not name the file of its "
          "kernels, which tools/build-ascend-kernels makes");
  tigon_context *context = open_npu(NULL); /* so none is chosen */
  assert_string_equal(tigon_context_device(context), "cpu");
  tigon_context_destroy(context);
  setenv("TIGON_ASCEND_KERNELS", "nowhere.o", 1);
  refuses("npu", TIGON_ERROR_DEVICE,
          "context: device npu did not open: the file of kernels nowhere.o cannot be read (TIGON_ASCEND_KERNELS)");
  setenv("TIGON_ASCEND_KERNELS", kernels, 1);
  free(kernels);
}

static void test_does_not_open(void **state) {
  (void)state;
  fake.machine(2, "Ascend310P3");
  refuses(
      "npu", TIGON_ERROR_DEVICE,
      "context: device npu did not open: aclrtGetSocName says Ascend310P3; there are kernels for 910B1 to 910B4 and 910_93");
  fake.machine(2, "Ascend950PR_9589");
  refuses(
      "npu", TIGON_ERROR_DEVICE,
      "context: device npu did not open: aclrtGetSocName says Ascend950PR_9589; there are kernels for 910B1 to 910B4 and 910_93");
  fake.machine(2, "Ascend910_9392");
  fake.fail_at("aclrtGetSocName", 1, 1);
  refuses(
      "npu", TIGON_ERROR_DEVICE,
      "context: device npu did not open: aclrtGetSocName says nothing; there are kernels for 910B1 to 910B4 and 910_93");
  fake.fail_at("aclrtSetDevice", 1, 107001);
  refuses("npu:1", TIGON_ERROR_DEVICE,
          "context: device npu:1 did not open: aclrtSetDevice returned 107001 (ACL_ERROR_RT_INVALID_DEVICEID)");
  fake.fail_at("aclrtCreateStream", 1, 207008);
  refuses("npu", TIGON_ERROR_DEVICE,
          "context: device npu did not open: aclrtCreateStream returned 207008 (ACL_ERROR_RT_NO_STREAM_RESOURCE)");
  fake.fail_at(old ? "aclrtBinaryLoadFromData" : "aclrtBinaryLoadFromFile", 1, 507033);
  refuses(
      "npu", TIGON_ERROR_DEVICE,
      old ? "context: device npu did not open: aclrtBinaryLoadFromData returned 507033 (ACL_ERROR_RT_DEV_SETUP_ERROR)"
          : "context: device npu did not open: aclrtBinaryLoadFromFile returned 507033 (ACL_ERROR_RT_DEV_SETUP_ERROR)");
  for (int nth = 1; nth <= (old ? 2 : 3); ++nth) {
    fake.fail_at("aclrtMalloc", nth, 207001);
    refuses("npu", TIGON_ERROR_OUT_OF_MEMORY,
            "context: device npu did not open: aclrtMalloc returned 207001 (ACL_ERROR_RT_MEMORY_ALLOCATION)");
  }
  fake.fail_at("aclrtMemsetAsync", 1, 123456);
  refuses("npu", TIGON_ERROR_DEVICE,
          "context: device npu did not open: aclrtMemsetAsync returned 123456 (an unknown code)");
}

/* ---- work ---- */

enum { ROWS = 37, COLS = 300 };

static void fill(float *x) {
  for (int i = 0; i < ROWS * COLS; ++i) x[i] = (float)(i * 7919 % 1000) / 500 - 1;
}

/* y = rms_norm(x) on a device, whatever memory it has. */
static void run_norm(tigon_context *context, float *y) {
  float x[ROWS * COLS];
  void *there[2];
  fill(x);
  for (int i = 0; i < 2; ++i) assert_int_equal(tigon_alloc(context, sizeof x, &there[i]), TIGON_OK);
  assert_int_equal(tigon_copy(context, there[0], x, sizeof x), TIGON_OK);
  const tigon_rms_norm_fwd_args args = {.x = tigon_tensor_2d(there[0], TIGON_F32, ROWS, COLS),
                                        .y = tigon_tensor_2d(there[1], TIGON_F32, ROWS, COLS),
                                        .eps = 1e-6};
  assert_int_equal(tigon_fill(context, there[1], 0xff, sizeof x), TIGON_OK);
  if (tigon_rms_norm_fwd(context, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  assert_int_equal(tigon_context_sync(context), TIGON_OK);
  assert_int_equal(tigon_copy(context, y, there[1], sizeof x), TIGON_OK);
  for (int i = 0; i < 2; ++i) tigon_free(context, there[i]);
}

/* ---- what the device says of itself ---- */

static const tigon_device *described(const tigon_context *context) {
  return context->queue.backend->describe(&context->queue);
}

/* A 910_9392 has 48 vector cores, and the table has the least of all 910_93: what the device says counts. */
static void test_asks_the_device(void **state) {
  (void)state;
  fake.machine(2, "Ascend910_9392");
  tigon_context *context = open_npu(&(tigon_context_desc){.device = "npu"});
  assert_int_equal(described(context)->cores, 40);
  assert_int_equal(described(context)->onchip_bytes, 188160);
  tigon_context_destroy(context);
  fake.device(48, 131072);
  context = open_npu(&(tigon_context_desc){.device = "npu:1"});
  assert_int_equal(described(context)->cores, 48);
  assert_int_equal(described(context)->onchip_bytes, old ? 188160 : 131072);
  tigon_context_destroy(context);
  setenv("TIGON_ASCEND_CORES", "16", 1); /* before what the device says */
  context = open_npu(&(tigon_context_desc){.device = "npu:1"});
  assert_int_equal(described(context)->cores, 16);
  tigon_context_destroy(context);
  unsetenv("TIGON_ASCEND_CORES");
  fake.device(5000, 196608); /* no such part: the table's cores, and no more UB than kernels were built for */
  context = open_npu(&(tigon_context_desc){.device = "npu"});
  assert_int_equal(described(context)->cores, 40);
  assert_int_equal(described(context)->onchip_bytes, 188160);
  tigon_context_destroy(context);
  fake.machine(2, "Ascend910B7"); /* a 910B that the table lacks opens if it says how many cores it has */
  fake.device(36, 0);
  context = open_npu(&(tigon_context_desc){.device = "npu"});
  assert_int_equal(described(context)->cores, 36);
  static float y[ROWS * COLS];
  run_norm(context, y);
  tigon_context_destroy(context);
  fake.device(0, 0);
  refuses(
      "npu", TIGON_ERROR_DEVICE,
      "context: device npu did not open: aclrtGetSocName says Ascend910B7; there are kernels for 910B1 to 910B4 and 910_93");
  fake.machine(2, "Ascend910_9589"); /* a 950, whatever it says of its cores */
  fake.device(64, 0);
  refuses(
      "npu", TIGON_ERROR_DEVICE,
      "context: device npu did not open: aclrtGetSocName says Ascend910_9589; there are kernels for 910B1 to 910B4 and 910_93");
  fake.device(0, 0);
  fake.machine(2, "Ascend910B4-1");
}

/* Kernels are loaded as a vector core's, or without that word by a runtime that does not take it. */
static void test_kind_of_core(void **state) {
  (void)state;
  static float y[ROWS * COLS];
  for (int needs = 0; needs < 2; ++needs) {
    fake.cores(needs, needs);
    tigon_context *context = open_npu(&(tigon_context_desc){.device = "npu"});
    run_norm(context, y);
    tigon_context_destroy(context);
    assert_int_equal(fake.alive(), 0);
  }
  fake.cores(false, true);
}

/* The runtime gets the absolute path of a file that was named from here. */
static void test_absolute_path(void **state) {
  (void)state;
  char *kernels = strdup(getenv("TIGON_ASCEND_KERNELS")), before[4096];
  char *name = strrchr(kernels, '/');
  assert_non_null(name);
  assert_non_null(getcwd(before, sizeof before));
  *name++ = 0;
  assert_int_equal(chdir(kernels), 0);
  setenv("TIGON_ASCEND_KERNELS", name, 1);
  tigon_context *context = open_npu(&(tigon_context_desc){.device = "npu"});
  if (!old) assert_int_equal(fake.loaded()[0], '/');
  tigon_context_destroy(context);
  assert_int_equal(chdir(before), 0);
  name[-1] = '/';
  setenv("TIGON_ASCEND_KERNELS", kernels, 1);
  free(kernels);
}

/* ---- at work ---- */

static void test_same_bits(void **state) {
  (void)state;
  static float on_npu[ROWS * COLS], in_simulator[ROWS * COLS];
  fake.machine(2, "Ascend910B4-1");
  tigon_context *npu = open_npu(&(tigon_context_desc){.device = "npu"});
  tigon_context *simulator = open_npu(&(tigon_context_desc){.device = "ascend-sim:910B4"});
  run_norm(npu, on_npu);
  run_norm(simulator, in_simulator);
  assert_memory_equal(on_npu, in_simulator, sizeof on_npu);
  assert_string_equal(tigon_context_device(npu), "npu");
  assert_string_equal(tigon_last_variant(npu), "dav-2201");
  assert_int_equal(tigon_supports(npu, "rms_norm", "bwd", TIGON_BF16), 1);
  assert_int_equal(tigon_supports(npu, "linear", "fwd", TIGON_F32), !old);
  assert_int_equal(tigon_supports(npu, "fused_linear_cross_entropy", "bwd", TIGON_F32), !old);
  assert_int_equal(tigon_supports(npu, "attention", "fwd", TIGON_F32), !old);
  assert_int_equal(tigon_supports(npu, "fused_moe", "fwd", TIGON_F32), 0);
  assert_string_equal(tigon_context_gemm(npu), old ? "none" : "aclnn: no grade");
  tigon_context_destroy(npu);
  tigon_context_destroy(simulator);
  assert_int_equal(fake.alive(), 0);
}

/* Its products are missing. */
static void test_refuses_fused_moe(void **state) {
  (void)state;
  tigon_context *npu = open_npu(&(tigon_context_desc){.device = "npu"});
  void *memory;
  assert_int_equal(tigon_alloc(npu, 64, &memory), TIGON_OK);
  const tigon_tensor one = tigon_tensor_2d(memory, TIGON_F32, 1, 1);
  const tigon_fused_moe_fwd_args args = {.x = one,
                                         .idx = tigon_tensor_2d((char *)memory + 4, TIGON_I32, 1, 1),
                                         .w = one,
                                         .gate_up = tigon_tensor_3d((char *)memory + 8, TIGON_F32, 1, 2, 1),
                                         .down = tigon_tensor_3d((char *)memory + 16, TIGON_F32, 1, 1, 1),
                                         .y = tigon_tensor_2d((char *)memory + 20, TIGON_F32, 1, 1)};
  assert_int_equal(tigon_fused_moe_fwd(npu, &args), TIGON_ERROR_UNSUPPORTED);
  assert_string_equal(tigon_last_error(npu), "fused_moe_fwd: npu (dav-2201) has no kernel for f32");
  tigon_free(npu, memory);
  tigon_context_destroy(npu);
}

/* The caller's stream stays the caller's, and so does its current device. */
static void test_leaves_the_caller_alone(void **state) {
  (void)state;
  static float y[ROWS * COLS];
  void *stream = NULL;
  assert_int_equal(fake.set_device(1), 0);
  assert_int_equal(fake.create_stream(&stream), 0);
  assert_int_equal(fake.set_device(0), 0);
  tigon_context *context = open_npu(&(tigon_context_desc){.device = "npu:1", .stream = stream});
  assert_int_equal(current(), 0);
  run_norm(context, y);
  assert_int_equal(current(), 0);
  tigon_context_destroy(context);
  assert_int_equal(current(), 0);
  assert_int_equal(fake.alive(), 1);
  assert_int_equal(fake.destroy_stream(stream), 0);
}

static void fails(tigon_context *context, tigon_status got, tigon_status status, const char *sentence) {
  assert_string_equal(tigon_last_error(context), sentence);
  assert_int_equal(got, status);
}

static void test_failures_at_work(void **state) {
  (void)state;
  static float y[ROWS * COLS];
  void *memory = NULL;
  tigon_context *context = open_npu(&(tigon_context_desc){.device = "npu"});
  const int before = fake.alive();
  fake.fail_at("aclrtMalloc", 1, 207018);
  fails(context, tigon_alloc(context, 4096, &memory), TIGON_ERROR_OUT_OF_MEMORY,
        "alloc: 4096 bytes are not there: aclrtMalloc returned 207018 (ACL_ERROR_RT_DEVIDE_OOM)");
  assert_null(memory);
  assert_int_equal(fake.alive(), before);
  assert_int_equal(tigon_alloc(context, 4096, &memory), TIGON_OK);
  fake.fail_at("aclrtMemcpyAsync", 1, 507013);
  fails(context, tigon_copy(context, memory, y, 4096), TIGON_ERROR_DEVICE,
        "copy: 4096 bytes failed: aclrtMemcpyAsync returned 507013 (ACL_ERROR_RT_SYS_DMA)");
  fake.fail_at("aclrtSynchronizeStream", 1, 507046);
  fails(context, tigon_copy(context, memory, y, 4096), TIGON_ERROR_DEVICE,
        "copy: 4096 bytes failed: aclrtSynchronizeStream returned 507046 (ACL_ERROR_RT_STREAM_SYNC_TIMEOUT)");
  fake.fail_at("aclrtMemsetAsync", 1, 107017);
  fails(context, tigon_fill(context, memory, 0, 4096), TIGON_ERROR_DEVICE,
        "fill: 4096 bytes failed: aclrtMemsetAsync returned 107017 (ACL_ERROR_RT_INVALID_HANDLE)");
  fake.fail_at("aclrtSynchronizeStream", 1, 507010);
  fails(context, tigon_context_sync(context), TIGON_ERROR_DEVICE,
        "context_sync: npu failed: aclrtSynchronizeStream returned 507010 (ACL_ERROR_RT_LOST_HEARTBEAT)");
  fake.fail_at("aclrtGetDevice", 1, 107002); /* a thread without a device yet: no failure */
  assert_int_equal(tigon_context_sync(context), TIGON_OK);

  const tigon_relu_squared_fwd_args args = {.x = tigon_tensor_2d(memory, TIGON_F32, 4, 100),
                                            .y = tigon_tensor_2d((char *)memory + 2048, TIGON_F32, 4, 100)};
  fake.fail_at("aclrtBinaryGetFunction", 1, 507027);
  fails(
      context, tigon_relu_squared_fwd(context, &args), TIGON_ERROR_DEVICE,
      "relu_squared_fwd: the launch on npu failed: aclrtBinaryGetFunction returned 507027 (ACL_ERROR_RT_KERNEL_LOOKUP)");
  static const char *const newer[] = {"aclrtLaunchKernelWithHostArgs"};
  static const char *const older[] = {"aclrtKernelArgsInit", "aclrtKernelArgsAppend", "aclrtKernelArgsFinalize",
                                      "aclrtLaunchKernelWithConfig"};
  for (int i = 0; i < (old ? 4 : 1); ++i) {
    const char *call = old ? older[i] : newer[i];
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "relu_squared_fwd: the launch on npu failed: %s returned 207001 (ACL_ERROR_RT_MEMORY_ALLOCATION)", call);
    fake.fail_at(call, 1, 207001);
    fails(context, tigon_relu_squared_fwd(context, &args), TIGON_ERROR_OUT_OF_MEMORY, sentence);
  }
  assert_int_equal(tigon_relu_squared_fwd(context, &args), TIGON_OK);
  assert_int_equal(tigon_context_sync(context), TIGON_OK);

  /* A fault of a kernel shows when it is waited for: here it reads past the memory that it was given. */
  const tigon_relu_squared_fwd_args beyond = {.x = tigon_tensor_2d(memory, TIGON_F32, 4, 1000),
                                              .y = tigon_tensor_2d(memory, TIGON_F32, 4, 1000)};
  assert_int_equal(tigon_relu_squared_fwd(context, &beyond), TIGON_OK);
  fails(context, tigon_context_sync(context), TIGON_ERROR_DEVICE,
        "context_sync: npu failed: aclrtSynchronizeStream returned 507015 (ACL_ERROR_RT_AICORE_EXCEPTION)");
  tigon_free(context, memory);
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 0);
}

/* The device's own clock, which tigon bench takes. */
static void test_time(void **state) {
  (void)state;
  static float y[ROWS * COLS];
  static const struct {
    const char *call;
    int nth;
    bool begin;
    const char *sentence;
  } failures[] = {
      {"aclrtCreateEvent", 1, true, "aclrtCreateEvent returned 207007 (ACL_ERROR_RT_NO_EVENT_RESOURCE)"},
      {"aclrtCreateEvent", 2, true, "aclrtCreateEvent returned 207007 (ACL_ERROR_RT_NO_EVENT_RESOURCE)"},
      {"aclrtRecordEvent", 1, true, "aclrtRecordEvent returned 207007 (ACL_ERROR_RT_NO_EVENT_RESOURCE)"},
      {"aclrtRecordEvent", 1, false, "aclrtRecordEvent returned 207007 (ACL_ERROR_RT_NO_EVENT_RESOURCE)"},
      {"aclrtSynchronizeEvent", 1, false, "aclrtSynchronizeEvent returned 207007 (ACL_ERROR_RT_NO_EVENT_RESOURCE)"},
      {"aclrtEventElapsedTime", 1, false, "aclrtEventElapsedTime returned 207007 (ACL_ERROR_RT_NO_EVENT_RESOURCE)"},
  };
  tigon_context *context = open_npu(&(tigon_context_desc){.device = "npu"});
  tigon_queue *queue = &context->queue;
  double seconds = -1;
  for (size_t i = 0; i < sizeof failures / sizeof *failures; ++i) {
    tigon_context *broken = open_npu(&(tigon_context_desc){.device = "npu"});
    tigon_queue *other = &broken->queue;
    if (!failures[i].begin) assert_int_equal(other->backend->time(other, true, NULL), TIGON_OK);
    fake.fail_at(failures[i].call, failures[i].nth, 207007);
    assert_int_equal(other->backend->time(other, failures[i].begin, &seconds), TIGON_ERROR_DEVICE);
    assert_string_equal(other->reason, failures[i].sentence);
    tigon_context_destroy(broken);
  }
  assert_int_equal(queue->backend->time(queue, true, NULL), TIGON_OK);
  run_norm(context, y);
  assert_int_equal(queue->backend->time(queue, false, &seconds), TIGON_OK);
  assert_true(seconds > 5e-6 && seconds < 1e-3); /* a launch of the model takes 5 us and more */
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 0);
}

/* Whatever fails while a context closes, the rest is given back, and the process lives. */
static void test_failures_at_the_end(void **state) {
  (void)state;
  static const char *const calls[] = {"aclrtSynchronizeStream", "aclrtFree", "aclrtBinaryUnLoad", "aclrtDestroyStream"};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    tigon_context *context = open_npu(&(tigon_context_desc){.device = "npu"});
    fake.fail_at(calls[i], 1, 507000);
    tigon_context_destroy(context);
    assert_int_equal(fake.alive(), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_not_there),           cmocka_unit_test(test_does_not_open),
      cmocka_unit_test(test_asks_the_device),     cmocka_unit_test(test_kind_of_core),
      cmocka_unit_test(test_absolute_path),       cmocka_unit_test(test_same_bits),
      cmocka_unit_test(test_refuses_fused_moe),   cmocka_unit_test(test_leaves_the_caller_alone),
      cmocka_unit_test(test_failures_at_work),    cmocka_unit_test(test_time),
      cmocka_unit_test(test_failures_at_the_end),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
