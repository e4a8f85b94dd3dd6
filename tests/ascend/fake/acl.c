/* A fake runtime in place of CANN's. Device memory is memory that the host does not touch. Launches run the kernels by
 * fake_acl_run(). Any call can be made to fail. Kernels are this library's own symbols; a "binary" is a file that begins with
 * "fake kernels". Faults of a kernel show at the next wait, as on a device. With FAKE_ACL_OLD it has what CANN had before 8.5. */
#include "acl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST = 256,
  PARAM_INVALID = 107000,
  CONTEXT_NULL = 107002,
  KERNEL_LOOKUP = 507027,
  EXCEPTION = 507015,
  NO_MEMORY = 207001
};
static const char magic[] = "fake kernels";

/* ---- what a test controls ---- */

static struct {
  const char *call;
  int nth, code;
} forced;
static uint32_t devices = 2;
static const char *soc = "Ascend910B4-1";
static int64_t vector_cores, ub_bytes;
static bool needs_core, knows_core = true;
static char loaded[4096];
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
void fake_acl_device(int64_t cores, int64_t bytes) {
  vector_cores = cores;
  ub_bytes = bytes;
}
void fake_acl_cores(bool needs, bool knows) {
  needs_core = needs;
  knows_core = knows;
}
const char *fake_acl_loaded(void) { return loaded; }
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

/* A question is answered where the test gave an answer. */
static int answer(int64_t known, int64_t *value) {
  if (known) *value = known;
  return known ? 0 : PARAM_INVALID;
}
#if defined(FAKE_ACL_OLD)
int aclGetDeviceCapability(uint32_t device, int information, int64_t *value) {
  MAY_FAIL;
  return answer(device < devices && information == 1 ? vector_cores : 0, value);
}
#else
int aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t *value) {
  MAY_FAIL;
  return answer(device >= devices ? 0 : attribute == 201 ? vector_cores : attribute == 204 ? ub_bytes : 0, value);
}
#endif

/* ---- memory ---- */

static fake_acl_block blocks[MOST];

int aclrtMalloc(void **memory, size_t bytes, int policy) {
  MAY_FAIL;
  enum { LINE = 512 };
  (void)policy;
  if (current < 0) return CONTEXT_NULL;
  int at = 0;
  while (at < MOST && blocks[at].start) ++at;
  if (at == MOST || bytes == 0) return PARAM_INVALID;
  *memory = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
  if (!*memory) return NO_MEMORY;
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
  if (!s) return NO_MEMORY;
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
  void *symbol;
} function;
typedef struct binary {
  void *self; /* this library */
  bool for_vector_cores;
  function functions[64];
  int count;
} binary;

/* aclrtBinaryLoadOptions, of which this takes one: the kind of core. */
typedef struct load_options {
  struct {
    int type;
    uint32_t value[4];
  } * options;
  size_t count;
} load_options;

static int load(const char *data, size_t bytes, const load_options *options, void **made) {
  Dl_info here;
  if (bytes < sizeof magic - 1 || memcmp(data, magic, sizeof magic - 1) != 0) return PARAM_INVALID;
  if (options && (!knows_core || options->count != 1 || options->options[0].type != 2 ||
                  options->options[0].value[0] != 0x41415246u))
    return PARAM_INVALID;
  if (!dladdr((const void *)magic, &here)) return KERNEL_LOOKUP;
  binary *b = calloc(1, sizeof *b);
  if (b) b->self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (!b || !b->self) return free(b), NO_MEMORY;
  b->for_vector_cores = options;
  *made = b;
  ++alive;
  return 0;
}

#if !defined(FAKE_ACL_OLD)
int aclrtBinaryLoadFromFile(const char *path, const load_options *options, void **made) {
  MAY_FAIL;
  char data[sizeof magic] = "";
  FILE *file = fopen(path, "rb");
  snprintf(loaded, sizeof loaded, "%s", path);
  if (!file) return PARAM_INVALID;
  const size_t bytes = fread(data, 1, sizeof data, file);
  fclose(file);
  return load(data, bytes, options, made);
}
#endif

int aclrtBinaryLoadFromData(const void *data, size_t bytes, const load_options *options, void **made) {
  MAY_FAIL;
  return load(data, bytes, options, made);
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
  if (!symbol || b->count == 64 || (needs_core && !b->for_vector_cores)) return KERNEL_LOOKUP;
  function *f = &b->functions[b->count++];
  snprintf(f->name, sizeof f->name, "%s", name);
  f->symbol = symbol;
  *found = f;
  return 0;
}

static double clock_us; /* time by the model, over all launches */

static int launch(const function *f, uint32_t count, stream *s, const void *arguments, size_t bytes) {
  fake_acl_block memory[MOST];
  char text[FAKE_ACL_SENTENCE] = "";
  double microseconds = 0;
  int of_device = 0;
  for (int b = 0; b < MOST; ++b)
    if (blocks[b].start && blocks[b].device == current) memory[of_device++] = blocks[b];
  void *copy = malloc(bytes); /* has exactly this size, so that reads beyond it are found */
  if (!copy) return NO_MEMORY;
  memcpy(copy, arguments, bytes);
  const fake_acl_launch l = {f->name, f->symbol, count, copy, bytes, memory, of_device};
  if (!fake_acl_run(&l, &microseconds, text)) {
    s->fault = EXCEPTION;
    fprintf(stderr, "%s\n", text);
  }
  clock_us += microseconds;
  free(copy);
  return 0;
}

#if defined(FAKE_ACL_OLD)
/* The list of arguments of a launch: the runtime's own, also when the launch never comes. One is made at a time. */
typedef struct list {
  const function *of;
  size_t bytes;
  bool ready;
  char data[4096];
} list;

int aclrtKernelArgsInit(void *found, void **made) {
  MAY_FAIL;
  static list only;
  only = (list){.of = found};
  *made = &only;
  return 0;
}
int aclrtKernelArgsAppend(void *made, void *argument, size_t bytes, void **handle) {
  list *l = made;
  MAY_FAIL;
  if (!argument || !bytes || l->ready || l->bytes + bytes > sizeof l->data) return PARAM_INVALID;
  memcpy(l->data + l->bytes, argument, bytes);
  *handle = l->data + l->bytes;
  l->bytes += bytes;
  return 0;
}
int aclrtKernelArgsFinalize(void *made) {
  MAY_FAIL;
  ((list *)made)->ready = true;
  return 0;
}
int aclrtLaunchKernelWithConfig(void *found, uint32_t count, void *s, void *config, void *made, void *reserved) {
  MAY_FAIL;
  list *l = made;
  if (((stream *)s)->device != current || config || reserved || !l->ready || l->of != found) return PARAM_INVALID;
  return launch(found, count, s, l->data, l->bytes);
}
#else
int aclrtLaunchKernelWithHostArgs(void *found, uint32_t count, void *s, void *config, void *arguments, size_t bytes,
                                  void *holders, size_t holder_count) {
  MAY_FAIL;
  if (((stream *)s)->device != current || config || holders || holder_count || !arguments) return PARAM_INVALID;
  return launch(found, count, s, arguments, bytes);
}
#endif

/* ---- events ---- */

int aclrtCreateEvent(void **event) {
  MAY_FAIL;
  *event = calloc(1, sizeof(double));
  if (!*event) return NO_MEMORY;
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
