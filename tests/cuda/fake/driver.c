/* A fake driver in place of NVIDIA's. Device memory is memory of the host. Launches compute nothing. Each must name a kernel
 * that its fat binary has, and keep to the limits of every GPU. Any call can be made to fail. */
#include "driver.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>

#include "cuda/driver.h"

enum { MOST_DEVICES = 4, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, SHARED = 227 * 1024, SMS = 132 };

/* ---- what a test controls ---- */

static struct {
  const char *call;
  int nth, code;
} forced;
static int devices = 2, capability = 90, cuda = 13000, alive;

void fake_cuda_fail(const char *call, int nth, int code) {
  forced.call = call;
  forced.nth = nth;
  forced.code = code;
}
void fake_cuda_machine(int count, int sm) {
  devices = count;
  capability = sm;
}
void fake_cuda_version(int version) { cuda = version; }
int fake_cuda_alive(void) { return alive; }

static struct {
  bool runs;
  void *stream;
  int launches;
  char wrong[256];
} op;

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...) {
  if (!op.runs || op.wrong[0]) return;
  va_list list;
  va_start(list, format);
  vsnprintf(op.wrong, sizeof op.wrong, format, list);
  va_end(list);
}
void fake_cuda_op_begins(void *stream) {
  memset(&op, 0, sizeof op);
  op.runs = true;
  op.stream = stream;
}
const char *fake_cuda_op_ends(int *launches) {
  op.runs = false;
  *launches = op.launches;
  return op.wrong[0] ? op.wrong : NULL;
}

static void (*watcher)(const char *kernel, const unsigned shape[5], void **arguments);
void fake_cuda_watch(void (*seen)(const char *kernel, const unsigned shape[5], void **arguments)) { watcher = seen; }

/* The code that this call shall return, 0: its own. */
static int code_of(const char *call) {
  const size_t length = forced.call ? strlen(forced.call) : 0;
  if (!forced.call || strncmp(call, forced.call, length) != 0) return 0;
  if (call[length] && strcmp(call + length, "_v2") != 0) return 0;
  if (--forced.nth > 0) return 0;
  forced.call = NULL;
  return forced.code;
}
#define MAY_FAIL                         \
  do {                                   \
    const int code_ = code_of(__func__); \
    if (code_) return code_;             \
  } while (0)
#define NOT_IN_AN_OP wrong("%s was called by an op", __func__)

/* ---- devices and contexts ---- */

static char contexts[MOST_DEVICES];
static _Thread_local void *stack[8];
static _Thread_local int depth;

int cuInit(unsigned flags) {
  MAY_FAIL;
  return flags ? INVALID : 0;
}
int cuDriverGetVersion(int *version) { return *version = cuda, 0; }
int cuGetErrorName(int code, const char **name) {
  *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == NOT_FOUND   ? "CUDA_ERROR_NOT_FOUND"
                                : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : "a failure";
  return 0;
}
int cuDeviceGetCount(int *count) {
  MAY_FAIL;
  *count = devices;
  return 0;
}
int cuDeviceGet(int *device, int index) {
  MAY_FAIL;
  *device = index;
  return index < 0 || index >= devices ? INVALID : 0;
}
int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "Fake GPU %d", device);
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case CU_ATTRIBUTE_SMS: *value = SMS; return 0;
    case CU_ATTRIBUTE_MEMORY_CLOCK_KHZ: *value = 3201000; return 0;
    case CU_ATTRIBUTE_MEMORY_BUS_BITS: *value = 6144; return 0;
    case CU_ATTRIBUTE_MAJOR: *value = capability / 10; return 0;
    case CU_ATTRIBUTE_MINOR: *value = capability % 10; return 0;
    case CU_ATTRIBUTE_BLOCK_SHARED_BYTES: *value = SHARED; return 0;
    case CU_ATTRIBUTE_L2_BYTES: *value = 50 << 20; return 0;
    default: return INVALID;
  }
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  MAY_FAIL;
  *context = &contexts[device];
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return device < devices ? 0 : INVALID; }
int cuCtxGetCurrent(void **context) {
  *context = depth ? stack[depth - 1] : NULL;
  return 0;
}
int cuCtxPushCurrent_v2(void *context) {
  MAY_FAIL;
  if (depth == (int)(sizeof stack / sizeof *stack)) return INVALID;
  stack[depth++] = context;
  return 0;
}
int cuCtxPopCurrent_v2(void **context) {
  if (!depth) return INVALID;
  *context = stack[--depth];
  return 0;
}

/* ---- streams, memory, events ---- */

int cuStreamCreate(void **stream, unsigned flags) {
  MAY_FAIL;
  (void)flags;
  *stream = malloc(1);
  if (!*stream) return OUT_OF_MEMORY;
  ++alive;
  return 0;
}
int cuStreamDestroy_v2(void *stream) {
  free(stream);
  --alive;
  return code_of(__func__);
}
int cuStreamSynchronize(void *stream) {
  NOT_IN_AN_OP;
  (void)stream;
  MAY_FAIL;
  return 0;
}
int cuMemAlloc_v2(cu_memory *memory, size_t bytes) {
  NOT_IN_AN_OP;
  MAY_FAIL;
  enum { LINE = 512 };
  if (!depth || bytes == 0) return INVALID;
  void *block = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
  if (!block) return OUT_OF_MEMORY;
  *memory = (cu_memory)block;
  ++alive;
  return 0;
}
int cuMemFree_v2(cu_memory memory) {
  NOT_IN_AN_OP;
  free((void *)memory);
  --alive;
  return code_of(__func__);
}
static void on_stream(const char *call, const void *stream) {
  if (stream != op.stream) wrong("%s is on another stream", call);
}
int cuMemcpyAsync(cu_memory to, cu_memory from, size_t bytes, void *stream) {
  on_stream(__func__, stream);
  MAY_FAIL;
  memcpy((void *)to, (const void *)from, bytes);
  return 0;
}
int cuMemsetD8Async(cu_memory memory, unsigned char value, size_t bytes, void *stream) {
  on_stream(__func__, stream);
  MAY_FAIL;
  memset((void *)memory, value, bytes);
  return 0;
}
int cuEventCreate(void **event, unsigned flags) {
  NOT_IN_AN_OP;
  MAY_FAIL;
  (void)flags;
  *event = malloc(1);
  if (!*event) return OUT_OF_MEMORY;
  ++alive;
  return 0;
}
int cuEventDestroy_v2(void *event) {
  free(event);
  --alive;
  return code_of(__func__);
}
int cuEventRecord(void *event, void *stream) {
  MAY_FAIL;
  (void)event, (void)stream;
  return 0;
}
int cuEventSynchronize(void *event) {
  NOT_IN_AN_OP;
  (void)event;
  MAY_FAIL;
  return 0;
}
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
  MAY_FAIL;
  (void)begin, (void)end;
  *milliseconds = 1.5f;
  return 0;
}

/* ---- kernels ---- */

/* A fat binary, and each of its images, begins with one of these. Only nvcc's files tell the second. */
typedef struct fat_header {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes; /* after the header */
} fat_header;
typedef struct image_header {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes; /* after the header */
  uint32_t packed_bytes, unknown[2], sm, also_unknown[2];
  uint64_t flags, zero, text_bytes;
} image_header;
enum { PTX = 1, LZ4 = 0x2000, ZSTD = 0x8000 };

typedef struct image {
  int sm;
  bool ptx;
  char *text;
  size_t bytes;
} image;
typedef struct library {
  image images[8];
  int count;
  struct library *next;
} library;
typedef struct kernel {
  char name[128];
  library *of;
  const image *has; /* the image that is known to have it */
  struct kernel *next;
} kernel;
static library *libraries; /* for as long as the process runs */
static kernel *kernels;

/* False: it cannot be unpacked. */
static bool unpack(const image_header *h, image *to) {
  const char *packed = (const char *)h + h->header_bytes;
  to->bytes = h->flags & (LZ4 | ZSTD) ? h->text_bytes : h->bytes;
  to->text = malloc(to->bytes);
  if (!to->text) return false;
  if (!(h->flags & (LZ4 | ZSTD))) return memcpy(to->text, packed, to->bytes), true;
  void *unpacker = dlopen(h->flags & ZSTD ? "libzstd.so.1" : "liblz4.so.1", RTLD_NOW);
  if (!unpacker) return fprintf(stderr, "%s\n", dlerror()), false;
  size_t (*zstd)(void *to, size_t bytes, const void *from, size_t packed_bytes);
  int (*lz4)(const char *from, char *to, int packed_bytes, int bytes);
  *(void **)&zstd = dlsym(unpacker, "ZSTD_decompress");
  *(void **)&lz4 = dlsym(unpacker, "LZ4_decompress_safe");
  return h->flags & ZSTD ? zstd(to->text, to->bytes, packed, h->packed_bytes) == to->bytes
                         : lz4(packed, to->text, (int)h->packed_bytes, (int)to->bytes) == (int)to->bytes;
}

/* For tests/oom: what a process keeps of its kernels is no part of what may run out of memory, nor are those who unpack them. */
__attribute__((weak)) void oom_pause(bool pauses);
static void pause_oom(bool pauses) {
  if (oom_pause) oom_pause(pauses);
}

static int load(void **loaded, const fat_header *header) {
  if (header->magic != 0xba55ed50) return INVALID;
  library *made = calloc(1, sizeof *made);
  if (!made) return OUT_OF_MEMORY;
  made->next = libraries;
  libraries = made;
  const char *at = (const char *)header + header->header_bytes, *const end = at + header->bytes;
  for (const image_header *h; at < end; at += h->header_bytes + h->bytes) {
    h = (const image_header *)at;
    if (made->count == sizeof made->images / sizeof *made->images) return INVALID;
    image *to = &made->images[made->count++];
    *to = (image){.sm = (int)h->sm, .ptx = h->kind == PTX};
    if (!unpack(h, to)) return INVALID;
  }
  *loaded = made;
  return 0;
}

int cuLibraryLoadData(void **loaded, const void *data, int *jit, void **jit_values, unsigned jit_count, int *options,
                      void **values, unsigned count) {
  NOT_IN_AN_OP;
  MAY_FAIL;
  if (jit || jit_values || jit_count || options || values || count) return INVALID;
  pause_oom(true);
  const int status = load(loaded, data);
  pause_oom(false);
  return status;
}

/* Machine code of this major version runs here, else PTX is compiled; of each the newest. A test that claims to have code for another
 * GPU gets the first. */
static const image *taken(const library *of) {
  const image *best = NULL;
  for (int ptx = 0; ptx < 2 && !best; ++ptx)
    for (const image *i = of->images; i < of->images + of->count; ++i)
      if (i->ptx == ptx && i->sm <= capability && (ptx || i->sm / 10 == capability / 10) && (!best || i->sm > best->sm))
        best = i;
  return best ? best : of->images;
}

/* Its name is a string of the machine code's table of symbols, or follows a directive. */
static bool has(const image *i, const char *name) {
  char wanted[160];
  const int length = snprintf(wanted, sizeof wanted, "%s%s%s", i->ptx ? ".entry " : "_", name, i->ptx ? "(" : "_");
  if (!i->ptx) wanted[0] = wanted[length - 1] = 0;
  return memmem(i->text, i->bytes, wanted, (size_t)length);
}

int cuLibraryGetKernel(void **found, void *of, const char *name) {
  MAY_FAIL;
  pause_oom(true);
  kernel *k = calloc(1, sizeof *k);
  pause_oom(false);
  if (!k) return OUT_OF_MEMORY;
  k->next = kernels;
  kernels = k;
  snprintf(k->name, sizeof k->name, "%s", name);
  k->of = of;
  k->has = taken(of);
  if (!has(k->has, name)) {
    wrong("no kernel is called %s", name);
    return NOT_FOUND;
  }
  *found = k;
  return 0;
}
int cuKernelSetAttribute(int attribute, int value, void *of, int device) {
  MAY_FAIL;
  if (attribute != CU_FUNCTION_DYNAMIC_SHARED_BYTES || value > SHARED || device >= devices) {
    wrong("%s: %d bytes of shared memory", ((const kernel *)of)->name, value);
    return INVALID;
  }
  return 0;
}
/* What the driver refuses. */
int cuTensorMapEncodeTiled(cu_tensor_map *map, int type, uint32_t rank, cu_memory memory, const uint64_t *extents,
                           const uint64_t *pitches, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int l2, int fill) {
  MAY_FAIL;
  const uint64_t bytes = type == CU_TENSOR_16_BITS ? 2 : 4, rows_bytes = 128, most_pitch = (uint64_t)1 << 40;
  bool legal = type >= CU_TENSOR_16_BITS && type <= CU_TENSOR_32_BITS && rank >= 2 && rank <= 5 && interleave == 0 &&
               swizzle == CU_TENSOR_SWIZZLE_128 && l2 <= CU_TENSOR_L2_256 && fill == 0 && capability >= 90;
  legal = legal && (uintptr_t)memory % 16 == 0 && (uintptr_t)map % 64 == 0 && box[0] * bytes <= rows_bytes;
  for (uint32_t d = 0; legal && d < rank; ++d)
    legal = extents[d] >= 1 && extents[d] <= (uint64_t)1 << 32 && box[d] >= 1 && box[d] <= 256 && steps[d] == 1 &&
            (d + 1 == rank || (pitches[d] >= 16 && pitches[d] < most_pitch && pitches[d] % 16 == 0));
  if (!legal) wrong("a tensor map that no engine has");
  memset(map, 0, sizeof *map);
  return legal ? 0 : INVALID;
}
int cuLaunchKernelEx(const cu_launch *launch, void *of, void **arguments, void **extra) {
  MAY_FAIL;
  kernel *k = of;
  const char *name = k->name;
  const image *runs = taken(k->of);
  const int sm = runs->sm < capability ? runs->sm : capability;
  if (k->has != runs && has(runs, name)) k->has = runs;
  if (k->has != runs) wrong("the code for compute capability %d has no %s", runs->sm, name);
  unsigned cluster = 1;
  for (unsigned i = 0; i < launch->attribute_count; ++i) {
    const cu_launch_attribute *attribute = &launch->attributes[i];
    if (attribute->id == CU_LAUNCH_CLUSTER)
      cluster = attribute->value[0];
    else if (attribute->id == CU_LAUNCH_COOPERATIVE && launch->grid[0] <= 2 * SMS)
      continue;
    else if (attribute->id != CU_LAUNCH_OVERLAPS || sm < 90)
      wrong("%s: launch attribute %d", name, attribute->id);
  }
  on_stream(name, launch->stream);
  if (!depth) wrong("%s: no context is current", name);
  if (launch->grid[0] == 0 || launch->grid[0] > 0x7fffffff || launch->grid[1] == 0 || launch->grid[1] > 65535 ||
      launch->grid[2] != 1)
    wrong("%s: a grid of %u x %u blocks", name, launch->grid[0], launch->grid[1]);
  const bool whole = launch->block[0] % 32 == 0 || !strncmp(name, "rope_half_plain", 15); /* has no sums over a warp */
  if (launch->block[0] == 0 || launch->block[0] > 1024 || !whole || launch->block[1] != 1 || launch->block[2] != 1)
    wrong("%s: a block of %u threads", name, launch->block[0]);
  if (launch->shared_bytes > SHARED) wrong("%s: %u bytes of shared memory", name, launch->shared_bytes);
  if (cluster > 1 && (sm < 90 || cluster > 8 || launch->grid[0] % cluster)) wrong("%s: a cluster of %u", name, cluster);
  if (extra || !arguments || !arguments[0]) wrong("%s: no arguments", name);
  ++op.launches;
  if (watcher && !op.wrong[0])
    watcher(name, (unsigned[]){launch->grid[0], launch->grid[1], launch->block[0], launch->shared_bytes, cluster},
            arguments);
  return op.wrong[0] ? INVALID : 0;
}
