/* A runtime of ours in place of CANN's: device memory is memory that the host leaves alone, launches run the kernels in the
 * simulator of a 910B4, and any call can be made to fail. Kernels are this library's own symbols; a "binary" is a file that
 * begins with "fake kernels". Faults of a kernel show at the next wait, as on a device. */
#include "acl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend/sim/sim.h"

enum { MOST = 256, PARAM_INVALID = 107000, CONTEXT_NULL = 107002, KERNEL_LOOKUP = 507027, EXCEPTION = 507015 };
static const char magic[] = "fake kernels";

/* ---- what a test controls ---- */

static struct {
  const char *call;
  int nth, code;
} forced;
static uint32_t devices = 2;
static const char *soc = "Ascend910B4-1";
static int alive;

void fake_acl_fail(const char *call, int nth, int code) {
  forced.call = call;
  forced.nth = nth;
  forced.code = code;
}
void fake_acl_machine(uint32_t count, const char *name) {
  devices = count;
  soc = name;
}
int fake_acl_alive(void) { return alive; }

void fake_acl_add_alive(int more) { alive += more; }

int fake_acl_code(const char *call) {
  if (!forced.call || strcmp(forced.call, call) != 0 || --forced.nth > 0) return 0;
  forced.call = NULL;
  return forced.code;
}
#define MAY_FAIL                               \
  do {                                         \
    const int code_ = fake_acl_code(__func__); \
    if (code_) return code_;                   \
  } while (0)

/* ---- devices ---- */

static _Thread_local int32_t current = -1;

int aclInit(const char *config) {
  MAY_FAIL;
  return config ? PARAM_INVALID : 0;
}
int aclrtGetDeviceCount(uint32_t *count) {
  MAY_FAIL;
  *count = devices;
  return 0;
}
int aclrtSetDevice(int32_t device) {
  MAY_FAIL;
  if (device < 0 || (uint32_t)device >= devices) return PARAM_INVALID;
  current = device;
  return 0;
}
int aclrtGetDevice(int32_t *device) {
  MAY_FAIL;
  if (current < 0) return CONTEXT_NULL;
  *device = current;
  return 0;
}
const char *aclrtGetSocName(void) { return fake_acl_code(__func__) ? NULL : soc; }

/* ---- memory ---- */

static struct {
  char *start;
  size_t bytes;
  int32_t device;
} blocks[MOST];

int aclrtMalloc(void **memory, size_t bytes, int policy) {
  MAY_FAIL;
  enum { LINE = 512 };
  (void)policy;
  if (current < 0) return CONTEXT_NULL;
  int at = 0;
  while (at < MOST && blocks[at].start) ++at;
  if (at == MOST || bytes == 0) return PARAM_INVALID;
  *memory = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
  if (!*memory) return 207001;
  blocks[at].start = *memory;
  blocks[at].bytes = bytes;
  blocks[at].device = current;
  ++alive;
  return 0;
}

/* What is given back is gone, whatever such a call returns. */
int aclrtFree(void *memory) {
  for (int b = 0; b < MOST; ++b)
    if (memory && blocks[b].start == memory) {
      free(memory);
      blocks[b].start = NULL;
      --alive;
      return fake_acl_code(__func__);
    }
  return PARAM_INVALID;
}

/* True for memory of the host, and for what lies within one block. */
static bool valid(const void *start, size_t bytes) {
  const char *s = start;
  for (int b = 0; b < MOST; ++b)
    if (blocks[b].start && s + bytes > blocks[b].start && s < blocks[b].start + blocks[b].bytes)
      return s >= blocks[b].start && s + bytes <= blocks[b].start + blocks[b].bytes;
  return true;
}

bool fake_acl_on_device(const void *start, size_t bytes) {
  const char *s = start;
  for (int b = 0; b < MOST; ++b)
    if (blocks[b].start && blocks[b].device == current && s >= blocks[b].start && s < blocks[b].start + blocks[b].bytes)
      return s + bytes <= blocks[b].start + blocks[b].bytes;
  return false;
}

/* ---- streams ---- */

typedef struct stream {
  int32_t device;
  int fault; /* what the next wait returns */
} stream;

bool fake_acl_on_stream(const void *s) { return s && ((const stream *)s)->device == current; }

int aclrtCreateStream(void **made) {
  MAY_FAIL;
  if (current < 0) return CONTEXT_NULL;
  stream *s = calloc(1, sizeof *s);
  s->device = current;
  *made = s;
  ++alive;
  return 0;
}
int aclrtDestroyStream(void *s) {
  free(s);
  --alive;
  return fake_acl_code(__func__);
}
int aclrtSynchronizeStream(void *s) {
  MAY_FAIL;
  const int fault = ((stream *)s)->fault;
  ((stream *)s)->fault = 0;
  return fault;
}
int aclrtMemcpyAsync(void *to, size_t most, const void *from, size_t bytes, int kind, void *s) {
  MAY_FAIL;
  if (kind != 4 || bytes > most || ((stream *)s)->device != current || !valid(to, bytes) || !valid(from, bytes))
    return PARAM_INVALID;
  memcpy(to, from, bytes);
  return 0;
}
int aclrtMemsetAsync(void *memory, size_t most, int32_t value, size_t bytes, void *s) {
  MAY_FAIL;
  if (bytes > most || ((stream *)s)->device != current || !valid(memory, bytes)) return PARAM_INVALID;
  memset(memory, value, bytes);
  return 0;
}

/* ---- kernels ---- */

typedef struct function {
  char name[64];
  tigon_sim_kernel *kernel;
} function;
typedef struct binary {
  void *self; /* this library */
  function functions[64];
  int count;
} binary;

static int load(const char *data, size_t bytes, void **made) {
  Dl_info here;
  if (bytes < sizeof magic - 1 || memcmp(data, magic, sizeof magic - 1) != 0) return PARAM_INVALID;
  if (!dladdr((const void *)magic, &here)) return KERNEL_LOOKUP;
  binary *b = calloc(1, sizeof *b);
  b->self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *made = b;
  ++alive;
  return 0;
}

#if !defined(FAKE_ACL_OLD)
int aclrtBinaryLoadFromFile(const char *path, void *options, void **made) {
  MAY_FAIL;
  char data[sizeof magic] = "";
  FILE *file = options ? NULL : fopen(path, "rb");
  if (!file) return PARAM_INVALID;
  const size_t bytes = fread(data, 1, sizeof data, file);
  fclose(file);
  return load(data, bytes, made);
}
#endif

int aclrtBinaryLoadFromData(const void *data, size_t bytes, const void *options, void **made) {
  MAY_FAIL;
  return options ? PARAM_INVALID : load(data, bytes, made);
}

int aclrtBinaryUnLoad(void *loaded) {
  dlclose(((binary *)loaded)->self);
  free(loaded);
  --alive;
  return fake_acl_code(__func__);
}

int aclrtBinaryGetFunction(void *loaded, const char *name, void **found) {
  MAY_FAIL;
  binary *b = loaded;
  void *symbol = dlsym(b->self, name);
  if (!symbol || b->count == 64) return KERNEL_LOOKUP;
  function *f = &b->functions[b->count++];
  snprintf(f->name, sizeof f->name, "%s", name);
  *(void **)&f->kernel = symbol;
  *found = f;
  return 0;
}

/* What a kernel may touch: the device's memory and nothing else. Beyond the simulator's list, all from the first to the last. */
static void give_memory(tigon_sim *sim, int32_t device) {
  const unsigned all = SIM_READS | SIM_WRITES;
  const char *begin = NULL, *end = NULL;
  int count = 0;
  for (int b = 0; b < MOST; ++b) {
    if (!blocks[b].start || blocks[b].device != device) continue;
    if (!begin || blocks[b].start < begin) begin = blocks[b].start;
    if (!end || blocks[b].start + blocks[b].bytes > end) end = blocks[b].start + blocks[b].bytes;
    ++count;
  }
  for (int b = 0; b < MOST && count <= 24; ++b)
    if (blocks[b].start && blocks[b].device == device)
      tigon_sim_buffer(sim, "device memory", blocks[b].start, (int64_t)blocks[b].bytes, all);
  if (count > 24) tigon_sim_buffer(sim, "device memory", begin, end - begin, all);
}

static double clock_us; /* of the model, over all launches */

int aclrtLaunchKernelWithHostArgs(void *found, uint32_t count, void *s, void *config, void *arguments, size_t bytes,
                                  void *holders, size_t holder_count) {
  MAY_FAIL;
  const function *f = found;
  if (((stream *)s)->device != current || config || holders || holder_count || !arguments) return PARAM_INVALID;
  tigon_sim *sim = tigon_sim_open(tigon_sim_soc_find("910B4"));
  void *copy = malloc(bytes); /* of just the size, so that what a kernel reads beyond is seen */
  memcpy(copy, arguments, bytes);
  give_memory(sim, current);
  if (!tigon_sim_launch(sim, f->name, f->kernel, copy, count)) {
    ((stream *)s)->fault = EXCEPTION;
    fprintf(stderr, "%s\n", tigon_sim_report(sim)->text);
  }
  clock_us += tigon_sim_counted(sim)->microseconds;
  free(copy);
  tigon_sim_close(sim);
  return 0;
}

/* ---- events ---- */

int aclrtCreateEvent(void **event) {
  MAY_FAIL;
  *event = calloc(1, sizeof(double));
  ++alive;
  return 0;
}
int aclrtDestroyEvent(void *event) {
  free(event);
  --alive;
  return fake_acl_code(__func__);
}
int aclrtRecordEvent(void *event, void *s) {
  MAY_FAIL;
  (void)s;
  *(double *)event = clock_us;
  return 0;
}
int aclrtSynchronizeEvent(void *event) {
  (void)event;
  MAY_FAIL;
  return 0;
}
int aclrtEventElapsedTime(float *milliseconds, void *begin, void *end) {
  MAY_FAIL;
  *milliseconds = (float)((*(double *)end - *(double *)begin) * 1e-3);
  return 0;
}
