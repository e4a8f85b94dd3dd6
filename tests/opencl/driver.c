/* The host side of OpenCL over a fake driver (fake/driver.c): the devices that are taken, addresses of buffers, the caller's own
 * buffers, the cache of programs, and threads. It also tests the self-check of a driver that computes wrongly. */
#include <dlfcn.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../api/api.h"
#include "core/context.h"
#include "opencl/devices.h"
#include "opencl/memory.h"
#include "tigon/opencl.h"

static int (*builds)(void), (*alive)(void);
static char folder[] = "/tmp/tigon-opencl-XXXXXX";

static int setup(void **state) {
  (void)state;
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library || !mkdtemp(folder)) return -1;
  *(void **)&builds = dlsym(library, "fake_opencl_builds");
  *(void **)&alive = dlsym(library, "fake_opencl_alive");
  setenv("TIGON_OPENCL_CACHE", folder, 1);
  opencl_gpu_paths[0] = folder;
  return builds && alive ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *walk) {
  (void)is, (void)kind, (void)walk;
  return remove(path);
}
static int teardown(void **state) {
  (void)state;
  return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void fake(const char *words) { setenv("FAKE_OPENCL", words, 1); }

static tigon_context *open_with(const tigon_context_desc *desc) {
  tigon_context *context;
  if (tigon_context_create(desc, &context) != TIGON_OK) fail_msg("%s", tigon_last_error(NULL));
  return context;
}
static tigon_context *open_opencl(void *stream) {
  return open_with(&(tigon_context_desc){.device = "opencl", .stream = stream});
}

/* ---- devices ---- */

static void refuses(const char *words, const char *device, const char *sentence) {
  tigon_context *context;
  fake(words);
  const tigon_context_desc desc = {.device = device};
  api_expect(NULL, tigon_context_create(&desc, &context), TIGON_ERROR_DEVICE, "%s", sentence);
}

static void test_devices(void **state) {
  (void)state;
  refuses("none", "opencl", "context: device opencl is not there: the OpenCL loader finds no device");
  refuses("none", "xpu", "context: device xpu is not there: the OpenCL loader finds no GPU of Intel");
  refuses("", "xpu", "context: device xpu is not there: the OpenCL loader finds no GPU of Intel");
  opencl_gpu_paths[0] = "/nowhere";
  refuses("intel", "xpu", "context: device xpu is not there: no GPU is there: there is neither /dev/dri nor /dev/dxg");
  opencl_gpu_paths[0] = folder;
  refuses("", "opencl:1", "context: device is \"opencl:1\", must be below opencl:1");
  refuses("old", "opencl", "context: device opencl is not there: Fake CPU is older than OpenCL 1.2");
  refuses("blind", "opencl", "context: device opencl is not there: Fake CPU has no compiler");
  refuses("unround", "opencl", "context: device opencl is not there: Fake CPU does not round f32 to the nearest");
  refuses("finite", "opencl", "context: device opencl is not there: Fake CPU has no infinity or NaN in f32");
}

/* cuda, npu, xpu, cpu: only a GPU of Intel is taken when no device is named. */
static void test_order(void **state) {
  (void)state;
  fake("");
  tigon_context *context = open_with(NULL);
  assert_string_equal(tigon_context_device(context), "cpu");
  tigon_context_destroy(context);
  fake("intel");
  context = open_with(NULL);
  assert_string_equal(tigon_context_device(context), "xpu");
  assert_string_equal(context->device->name, "Fake GPU");
  tigon_context_destroy(context);
  const char *const names[] = {"Fake GPU", "Fake CPU"}; /* GPUs come first */
  for (int i = 0; i < 2; ++i) {
    char name[32];
    snprintf(name, sizeof name, "opencl:%d", i);
    context = open_with(&(tigon_context_desc){.device = name});
    assert_string_equal(context->device->name, names[i]);
    tigon_context_destroy(context);
  }
}

static void test_variants(void **state) {
  (void)state;
  fake("");
  tigon_context *context;
  api_expect(NULL,
             tigon_context_create(&(tigon_context_desc){.device = "opencl", .variant = "opencl-subgroups"}, &context),
             TIGON_ERROR_INVALID,
             "context: variant is \"opencl-subgroups\", must be one of opencl-groups, opencl-items on this "
             "machine's opencl");
  setenv("TIGON_OPENCL", "opencl-groups", 1);
  context = open_opencl(NULL);
  assert_string_equal(context->kernels->variant, "opencl-groups");
  tigon_context_destroy(context);
  unsetenv("TIGON_OPENCL");
}

/* A variant is listed where any device has it, and run where the device has it. */
static void test_subgroups(void **state) {
  (void)state;
  fake("intel subgroups");
  for (int i = 0; i < 2; ++i) {
    char name[32];
    int count = 0;
    snprintf(name, sizeof name, "opencl:%d", i);
    tigon_context *context = open_with(&(tigon_context_desc){.device = name});
    const tigon_kernels *const *v = context->queue.backend->variants();
    for (; v[count]; ++count) assert_int_equal(tigon_queue_runs(&context->queue, v[count]), count < 2 || i == 0);
    assert_int_equal(count, 3);
    tigon_context_destroy(context);
  }
  tigon_context *context;
  const tigon_context_desc desc = {.device = "opencl:1", .variant = "opencl-subgroups"};
  api_expect(NULL, tigon_context_create(&desc, &context), TIGON_ERROR_UNSUPPORTED,
             "context: device opencl:1 did not open: it has neither cl_intel_subgroups nor, in OpenCL C 2.0, "
             "cl_khr_subgroups");
}

static void test_no_clblast(void **state) {
  (void)state;
  fake("intel");
  tigon_context *context = open_opencl(NULL);
  assert_string_equal(tigon_context_gemm(context), "built-in: run_to_run");
  tigon_context_destroy(context);
  setenv("TIGON_GEMM", "clblast", 1);
  api_expect(NULL, tigon_context_create(&(tigon_context_desc){.device = "opencl"}, &context), TIGON_ERROR_DEVICE,
             "context: device opencl did not open: TIGON_GEMM is \"clblast\", and libclblast.so.1 is not found");
  unsetenv("TIGON_GEMM");
}

static void test_precision(void **state) {
  (void)state;
  static const struct {
    const char *words;
    double ulps;
    bool flushes;
  } cases[] = {{"", 0, false}, {"inexact", 3, false}, {"flush inexact", 3, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    fake(cases[i].words);
    tigon_context *context = open_opencl(NULL);
    const tigon_precision is = context->queue.backend->precision(&context->queue);
    assert_true(is.ulps == cases[i].ulps && is.flushes == cases[i].flushes);
    tigon_context_destroy(context);
  }
}

/* ---- addresses ---- */

static void test_ranges(void **state) {
  (void)state;
  enum { RANGES = 200 };
  char context, other, buffers[RANGES], *base[RANGES];
  size_t bytes[RANGES];
  opencl_place place;
  for (int i = 0; i < RANGES; ++i) {
    bytes[i] = (size_t)(i * 1000 + 1);
    base[i] = opencl_range_add(&context, &buffers[i], bytes[i]);
    assert_non_null(base[i]);
  }
  for (int removed = 0; removed < 2; ++removed) /* then every third is gone */
    for (int i = 0; i < RANGES; ++i) {
      if (!removed && i % 3 == 0) continue;
      const size_t at[] = {0, bytes[i] / 2, bytes[i]};
      for (int k = 0; k < 3; ++k) {
        const bool there = opencl_range_find(&context, base[i] + at[k], &place);
        assert_true(there == !(removed && i % 3 == 0));
        if (there)
          assert_true(place.buffer == &buffers[i] && !place.shared && place.offset == at[k] &&
                      place.left == bytes[i] - at[k]);
      }
      assert_false(opencl_range_find(&context, base[i] + bytes[i] + 1, &place));
      assert_false(opencl_range_find(&context, base[i] - 1, &place));
      assert_false(opencl_range_find(&other, base[i], &place));
      assert_false(opencl_range_remove(&context, base[i] + 1, &place));
      assert_false(opencl_range_remove(&other, base[i], &place));
      if (removed || i % 3 != 1) continue;
      assert_true(opencl_range_remove(&context, base[i - 1], &place));
      assert_ptr_equal(place.buffer, &buffers[i - 1]);
    }
  for (int i = 0; i < RANGES; ++i) opencl_range_remove(&context, base[i], &place);
  assert_false(opencl_range_find(&context, base[1], &place));
}

static tigon_status relu(tigon_context *context, void *x, void *y, int64_t rows, int64_t cols) {
  const tigon_relu_squared_fwd_args args = {.x = tigon_tensor_2d(x, TIGON_F32, rows, cols),
                                            .y = tigon_tensor_2d(y, TIGON_F32, rows, cols)};
  return tigon_relu_squared_fwd(context, &args);
}

static void test_addresses(void **state) {
  (void)state;
  fake("");
  tigon_context *context = open_opencl(NULL);
  void *memory;
  float host[8] = {-1, 2, -3, 4, 5, -6, 7, -8}, back[16];
  assert_int_equal(tigon_alloc(context, sizeof back, &memory), TIGON_OK);
  assert_int_equal(tigon_copy(context, memory, host, sizeof host), TIGON_OK);
  assert_int_equal(relu(context, memory, (char *)memory + sizeof host, 2, 4), TIGON_OK);
  assert_int_equal(tigon_copy(context, back, memory, sizeof back), TIGON_OK);
  for (int i = 0; i < 8; ++i) assert_true(back[8 + i] == (host[i] > 0 ? host[i] * host[i] : 0));

  const char *const because = "which no buffer of this device holds: tigon_alloc() gives such memory, and "
                              "tigon_opencl_register() makes a cl_mem such";
  api_expect(context, relu(context, host, memory, 2, 4), TIGON_ERROR_INVALID, "relu_squared_fwd: x lies at %p, %s",
             (void *)host, because);
  char *beyond = (char *)memory + sizeof host + 4; /* ends behind the buffer */
  api_expect(context, relu(context, memory, beyond, 2, 4), TIGON_ERROR_INVALID, "relu_squared_fwd: y lies at %p, %s",
             (void *)beyond, because);
  api_expect(context, tigon_fill(context, beyond, 0, 32), TIGON_ERROR_INVALID,
             "fill: 32 bytes failed: the memory is in no buffer of this device");
  api_expect(context, tigon_alloc(context, 1 << 25, &memory), TIGON_ERROR_OUT_OF_MEMORY,
             "alloc: 33554432 bytes are not there: a buffer of Fake CPU has 16777216 bytes at most");
  tigon_context_destroy(context);
}

static void test_copies(void **state) {
  (void)state;
  fake("");
  tigon_context *context = open_opencl(NULL);
  tigon_queue *queue = &context->queue;
  char from[60], to[60], *memory;
  for (int i = 0; i < 60; ++i) from[i] = (char)i;
  assert_int_equal(tigon_alloc(context, 2 * sizeof from, (void **)&memory), TIGON_OK);
  assert_int_equal(tigon_copy(context, memory, from, sizeof from), TIGON_OK);
  assert_int_equal(tigon_fill(context, memory + sizeof from, 99, sizeof to), TIGON_OK);
  assert_int_equal(tigon_copy(context, memory + 62, memory + 3, 6), TIGON_OK);
  assert_int_equal(tigon_copy(context, to, memory + sizeof from, sizeof to), TIGON_OK);
  for (int i = 0; i < 60; ++i) assert_int_equal(to[i], i >= 2 && i < 8 ? 1 + i : 99);
  double seconds = -1;
  assert_int_equal(queue->backend->time(queue, true, NULL), TIGON_OK);
  assert_int_equal(queue->backend->time(queue, false, &seconds), TIGON_OK);
  assert_true(seconds >= 0 && seconds < 10);
  tigon_free(context, memory);
  tigon_context_destroy(context);
}

/* ---- the caller's own ---- */

static void test_register(void **state) {
  (void)state;
  fake("");
  const char *reason;
  const cl_api *cl = opencl_driver(&reason);
  void *device, *cl_context, *queue, *buffer, *foreign, *address;
  unsigned count;
  int code;
  cl->get_device_ids(NULL, CL_DEVICE_TYPE_ALL, 1, &device, &count);
  cl_context = cl->create_context(NULL, 1, &device, NULL, NULL, &code);
  foreign = cl->create_context(NULL, 1, &device, NULL, NULL, &code);
  queue = cl->create_command_queue(cl_context, device, 0, &code);
  buffer = cl->create_buffer(cl_context, CL_MEM_READ_WRITE, 64, NULL, &code);
  tigon_context *context = open_opencl(queue), *second = open_opencl(queue), *other = open_opencl(NULL), *cpu;
  assert_int_equal(tigon_opencl_register(context, buffer, &address), TIGON_OK);
  const float x[8] = {1, -2, 3, 4, 5, 6, 7, 8};
  float y[8];
  assert_int_equal(tigon_copy(context, address, x, sizeof x), TIGON_OK);
  assert_int_equal(relu(second, address, (char *)address + 32, 1, 8), TIGON_OK); /* it knows the range, too */
  assert_int_equal(cl->enqueue_read_buffer(queue, buffer, 1, 32, sizeof y, y, 0, NULL, NULL), 0);
  for (int i = 0; i < 8; ++i) assert_true(y[i] == (x[i] > 0 ? x[i] * x[i] : 0));
  assert_int_equal(relu(other, address, (char *)address + 32, 1, 8), TIGON_ERROR_INVALID);
  api_expect(other, tigon_opencl_register(other, buffer, &address), TIGON_ERROR_INVALID,
             "opencl_register: buffer is of another cl_context than the context's stream");
  api_expect(context, tigon_opencl_register(context, NULL, &address), TIGON_ERROR_INVALID,
             "opencl_register: buffer is no cl_mem");
  assert_int_equal(tigon_opencl_register(context, buffer, &address), TIGON_OK);
  cl->release_mem_object(buffer); /* the range keeps it */
  assert_int_equal(tigon_opencl_unregister(context, address), TIGON_OK);
  api_expect(context, tigon_opencl_unregister(context, address), TIGON_ERROR_INVALID,
             "opencl_unregister: address is %p, must be one that register gave", address);
  cpu = open_with(&(tigon_context_desc){.device = "cpu"});
  api_expect(cpu, tigon_opencl_register(cpu, buffer, &address), TIGON_ERROR_INVALID,
             "opencl_register: the context is of cpu, must be of opencl or xpu");
  tigon_context *none;
  fake("disorder");
  api_expect(NULL, tigon_context_create(&(tigon_context_desc){.device = "opencl", .stream = queue}, &none),
             TIGON_ERROR_INVALID,
             "context: device opencl did not open: stream is a queue that runs commands out of order, must be one in "
             "order");
  tigon_context_destroy(cpu);
  tigon_context_destroy(other);
  tigon_context_destroy(second);
  tigon_context_destroy(context);
  cl->release_command_queue(queue);
  cl->release_context(foreign);
  cl->release_context(cl_context);
}

/* ---- programs on disk ---- */

/* Runs an op in a cl_context of its own, which has no program yet; how many were built from source. */
static int built(void) {
  const char *reason;
  const cl_api *cl = opencl_driver(&reason);
  void *device, *cl_context, *queue, *memory;
  unsigned count;
  int code;
  cl->get_device_ids(NULL, CL_DEVICE_TYPE_ALL, 1, &device, &count);
  cl_context = cl->create_context(NULL, 1, &device, NULL, NULL, &code);
  queue = cl->create_command_queue(cl_context, device, 0, &code);
  tigon_context *context = open_opencl(queue);
  const int before = builds();
  assert_int_equal(tigon_alloc(context, 64, &memory), TIGON_OK);
  if (relu(context, memory, (char *)memory + 32, 1, 8) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  tigon_free(context, memory);
  tigon_context_destroy(context);
  cl->release_command_queue(queue);
  cl->release_context(cl_context);
  return builds() - before;
}

/* Cuts off the end of the program's file, or changes a byte in it. */
static void damage(bool cut) {
  char pattern[128];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s/relu_squared-f32-*", folder);
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    FILE *file = fopen(found.gl_pathv[i], "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const long bytes = ftell(file);
    if (cut) assert_int_equal(ftruncate(fileno(file), bytes - 1), 0);
    fseek(file, -2, SEEK_END);
    fputc('x', file);
    fclose(file);
  }
  globfree(&found);
}

static void test_cache(void **state) {
  (void)state;
  fake("a driver that nobody has built for");
  assert_int_equal(built(), 1);
  assert_int_equal(built(), 0);
  for (int cut = 0; cut < 2; ++cut) {
    damage(cut);
    assert_int_equal(built(), 1);
    assert_int_equal(built(), 0);
  }
  fake("another driver");
  assert_int_equal(built(), 1);
  setenv("TIGON_OPENCL_CACHE", "", 1); /* none */
  assert_int_equal(built(), 1);
  assert_int_equal(built(), 1);
  setenv("TIGON_OPENCL_CACHE", "/proc/nothing/can/be/here", 1);
  assert_int_equal(built(), 1);
  unsetenv("TIGON_OPENCL_CACHE");
  char home[64], inside[128];
  snprintf(home, sizeof home, "%s/home", folder);
  const char *own = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
  char *kept = own ? strdup(own) : NULL;
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  assert_int_equal(built(), 1);
  assert_int_equal(built(), 1);
  setenv("HOME", home, 1);
  assert_int_equal(built(), 1);
  assert_int_equal(built(), 0);
  snprintf(inside, sizeof inside, "%s/.cache/tigon/opencl", home);
  assert_int_equal(access(inside, X_OK), 0);
  if (kept) setenv("HOME", kept, 1);
  (void)xdg;
  free(kept);
  setenv("TIGON_OPENCL_CACHE", folder, 1);
}

/* What others may have written is not read, and nothing is written beside it. */
static void test_cache_of_others(void **state) {
  (void)state;
  char pattern[128];
  glob_t found;
  fake("a driver whose programs others may change");
  assert_int_equal(built(), 1);
  const mode_t open_to_others[] = {0770, 0702, 0777};
  for (size_t i = 0; i < sizeof open_to_others / sizeof *open_to_others; ++i) {
    assert_int_equal(chmod(folder, open_to_others[i]), 0);
    assert_int_equal(built(), 1);
    assert_int_equal(built(), 1);
  }
  assert_int_equal(chmod(folder, 0755), 0);
  assert_int_equal(built(), 0);
  if (geteuid() == 0) { /* root alone may give a folder away */
    assert_int_equal(chown(folder, 12345, (gid_t)-1), 0);
    assert_int_equal(built(), 1);
    assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
    assert_int_equal(built(), 0);
  }
  snprintf(pattern, sizeof pattern, "%s/relu_squared-f32-*", folder);
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; ++i) assert_int_equal(chmod(found.gl_pathv[i], 0666), 0);
  globfree(&found);
  assert_int_equal(built(), 1); /* and replaces the file */
  assert_int_equal(built(), 0);
  assert_int_equal(chmod(folder, 0700), 0);
}

static void test_broken_compiler(void **state) {
  (void)state;
  fake("broken");
  tigon_context *context = open_opencl(NULL);
  void *memory;
  assert_int_equal(tigon_alloc(context, 64, &memory), TIGON_OK);
  api_expect(
      context, relu(context, memory, (char *)memory + 32, 1, 8), TIGON_ERROR_DEVICE,
      "relu_squared_fwd: the launch on opencl failed: the driver of Fake CPU does not build relu_squared: line 1: no "
      "such thing");
  tigon_free(context, memory);
  tigon_context_destroy(context);
}

/* ---- the self-check ---- */

static tigon_status try_relu(char *sentence) {
  tigon_context *context = open_opencl(NULL);
  void *memory;
  assert_int_equal(tigon_alloc(context, 64, &memory), TIGON_OK);
  const tigon_status status = relu(context, memory, (char *)memory + 32, 1, 8);
  snprintf(sentence, 512, "%s", tigon_last_error(context));
  tigon_free(context, memory);
  tigon_context_destroy(context);
  return status;
}

static void test_self_check(void **state) {
  (void)state;
  char sentence[512], again[512];
  fake("right");
  assert_int_equal(try_relu(sentence), TIGON_OK);
  fake("wrong");
  assert_int_equal(try_relu(sentence), TIGON_ERROR_DEVICE);
  static const char begin[] = "relu_squared_fwd: the launch on opencl failed: the driver of Fake CPU computes "
                              "relu_squared_fwd wrongly in f32: y[",
                    end[] = " in a self-check; TIGON_OPENCL_TRUST=1 uses it all the same";
  if (strncmp(sentence, begin, strlen(begin)) != 0 || !strstr(sentence, end)) fail_msg("%s", sentence);
  assert_int_equal(try_relu(again), TIGON_ERROR_DEVICE); /* remembered */
  assert_string_equal(sentence, again);
  setenv("TIGON_OPENCL_TRUST", "1", 1);
  assert_int_equal(try_relu(sentence), TIGON_OK);
  unsetenv("TIGON_OPENCL_TRUST");
}

/* ---- threads ---- */

static void *work(void *unused) {
  (void)unused;
  tigon_context *context = open_opencl(NULL);
  intptr_t wrong = 0;
  for (int turn = 0; turn < 50; ++turn) {
    float x[96], y[96];
    void *memory;
    api_fill(x, 96, (float)turn);
    wrong += tigon_alloc(context, 2 * sizeof x, &memory) != TIGON_OK;
    wrong += tigon_copy(context, memory, x, sizeof x) != TIGON_OK;
    wrong += relu(context, memory, (char *)memory + sizeof x, 3, 32) != TIGON_OK;
    wrong += tigon_copy(context, y, (char *)memory + sizeof x, sizeof y) != TIGON_OK;
    for (int i = 0; i < 96; ++i) wrong += y[i] != (x[i] > 0 ? x[i] * x[i] : 0);
    tigon_free(context, memory);
  }
  tigon_context_destroy(context);
  return (void *)wrong; /* NOLINT(performance-no-int-to-ptr) */
}

static void test_threads(void **state) {
  (void)state;
  enum { THREADS = 4 };
  fake("threads");
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
  for (int i = 0; i < THREADS; ++i) {
    void *wrong;
    pthread_join(threads[i], &wrong);
    assert_null(wrong);
  }
}

/* Contexts give back all but the programs and cl_contexts that the process keeps. */
static void test_nothing_is_left(void **state) {
  (void)state;
  fake("threads");
  tigon_context_destroy(open_opencl(NULL));
  const int before = alive();
  for (int i = 0; i < 3; ++i) work(NULL);
  assert_int_equal(alive(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_broken_compiler), cmocka_unit_test(test_devices),    cmocka_unit_test(test_order),
      cmocka_unit_test(test_variants),        cmocka_unit_test(test_subgroups),  cmocka_unit_test(test_precision),
      cmocka_unit_test(test_no_clblast),      cmocka_unit_test(test_ranges),     cmocka_unit_test(test_addresses),
      cmocka_unit_test(test_copies),          cmocka_unit_test(test_register),   cmocka_unit_test(test_cache),
      cmocka_unit_test(test_cache_of_others), cmocka_unit_test(test_self_check), cmocka_unit_test(test_threads),
      cmocka_unit_test(test_nothing_is_left)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
