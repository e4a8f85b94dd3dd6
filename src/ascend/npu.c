/* An Ascend NPU as a backend, over the runtime that is found at run time, with kernels from the file that TIGON_ASCEND_KERNELS
 * names. Without that file no NPU is there, so that none is chosen whose kernels nobody built. */
#include "ascend/npu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ascend/ascend.h"
#include "ascend/plan/device_override.h"
#include "core/devices.h"

extern const tigon_kernels tigon_ascend_kernels;

static _Thread_local char why[256];

static ascend_npu *npu_of(const tigon_queue *queue) { return ascend_of(queue)->npu; }

/* ---- errors and the current device ---- */

tigon_status ascend_check(tigon_queue *queue, ascend_npu *npu, int code, const char *call) {
  if (code == ACL_OK) return TIGON_OK;
  snprintf(npu->reason, sizeof npu->reason, "%s returned %d (%s)", call, code, ascend_acl_name(code));
  queue->reason = npu->reason;
  return ascend_acl_status(code);
}

static const int32_t no_device = -1;

tigon_status ascend_enter(tigon_queue *queue, ascend_npu *npu, int32_t *before) {
  queue->reason = NULL;
  if (npu->acl->get_device(before) != ACL_OK) *before = no_device;
  if (*before == npu->index) return TIGON_OK;
  return ascend_check(queue, npu, npu->acl->set_device(npu->index), "aclrtSetDevice");
}

void ascend_leave(const ascend_npu *npu, int32_t before) {
  if (before != no_device && before != npu->index) npu->acl->set_device(before);
}

/* ---- devices ---- */

static int npu_count(const char **reason) {
  const acl_api *acl = ascend_acl(reason);
  if (!acl) return 0;
  uint32_t count = 0;
  const int code = acl->get_device_count(&count);
  *reason = why;
  if (code != ACL_OK) {
    snprintf(why, sizeof why, "aclrtGetDeviceCount returned %d (%s)", code, ascend_acl_name(code));
    return 0;
  }
  if (count == 0) snprintf(why, sizeof why, "%s finds none", acl->library);
  if (count == 0 || getenv("TIGON_ASCEND_KERNELS")) return (int)count;
  snprintf(why, sizeof why,
           "there is one, but TIGON_ASCEND_KERNELS does not name the file of its kernels, which "
           "tools/build-ascend-kernels makes");
  return 0;
}

void tigon_npu_driver(char *to, size_t size) {
  const char *reason;
  const acl_api *acl = ascend_acl(&reason);
  int32_t version[3];
  to[0] = 0;
  if (!acl) return;
  const size_t used = (size_t)snprintf(to, size, "%s", acl->library);
  if (used < size && acl->get_version && acl->get_version(&version[0], &version[1], &version[2]) == ACL_OK)
    snprintf(to + used, size - used, " %d.%d.%d", version[0], version[1], version[2]);
}

static tigon_kernels own, with_aclnn;

static void fill_tables(void) {
  own = tigon_ascend_kernels;
  own.fused_moe_fwd.run = NULL, own.fused_moe_bwd.run = NULL; /* its grouped products are the simulator's alone */
  own.fused_moe_fwd.workspace = NULL, own.fused_moe_bwd.workspace = NULL;
  own.fused_moe_fwd.dtypes = own.fused_moe_bwd.dtypes = 0;
  with_aclnn = own;
  with_aclnn.linear_fwd.run = ascend_linear_fwd;
  with_aclnn.linear_bwd.run = ascend_linear_bwd;
  with_aclnn.linear_fwd.dtypes = with_aclnn.linear_bwd.dtypes = TIGON_FLOATS;
  if (!ascend_aclnn() || !ascend_aclnn_attention()) return;
  with_aclnn.attention_fwd.run = ascend_attention_fwd;
  with_aclnn.attention_bwd.run = ascend_attention_bwd;
  with_aclnn.attention_fwd.dtypes = with_aclnn.attention_bwd.dtypes = TIGON_FLOATS;
}

static const tigon_kernels *const *npu_variants(void) {
  static const tigon_kernels *const less[] = {&own, NULL}, *const more[] = {&with_aclnn, NULL};
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const char *reason;
  if (npu_count(&reason) == 0) return less + 1;
  pthread_once(&once, fill_tables);
  return ascend_aclnn() ? more : less;
}

/* "Ascend910B4-1" is a 910B4, "Ascend910_9392" a 910_93: the longest name of a part that it begins with. The kernels are those
 * of dav-2201, so that a 950 is none. */
static const tigon_sim_soc *part_of(const char *name) {
  const tigon_sim_soc *found = NULL, *soc;
  size_t longest = 0;
  if (strncasecmp(name, "ascend", 6) == 0) name += 6;
  for (int i = 0; (soc = tigon_sim_soc_at(i)); ++i) {
    const size_t length = strlen(soc->name);
    if (length <= longest || strncasecmp(name, soc->name, length) != 0 || strncmp(name, "910", 3) != 0) continue;
    longest = length;
    found = soc;
  }
  return found;
}

/* ---- opening ---- */

/* 0: this runtime does not know, or says what no part can be. */
static int64_t ask(const ascend_npu *npu, int attribute, int old_information) {
  enum { MOST = 1 << 20 };
  int64_t value = 0;
  const acl_api *acl = npu->acl;
  const uint32_t device = (uint32_t)npu->index;
  bool known = acl->get_device_info && acl->get_device_info(device, attribute, &value) == ACL_OK;
  if (!known && acl->get_device_capability && old_information >= 0)
    known = acl->get_device_capability(device, old_information, &value) == ACL_OK;
  return known && value > 0 && value <= MOST ? value : 0;
}

/* A part of one name may have more or fewer cores. A 910B that the table lacks uses its own answers. Its other figures, which
 * affect only predicted times, are a 910B4's. */
static bool describe_part(ascend_device *device, const char *name) {
  enum { MOST_CORES = 128 }; /* a partial sum of each fits into what adamw's clip takes as its workspace */
  const int64_t cores = ask(device->npu, ACL_VECTOR_CORES, ACL_VECTOR_CORES_OLD);
  const int64_t bytes = ask(device->npu, ACL_UB_BYTES, -1);
  const tigon_sim_soc *known = part_of(name);
  if (strncasecmp(name, "ascend", 6) == 0) name += 6;
  const bool like_910b = strncasecmp(name, "910B", 4) == 0 && name[4] >= '1' && name[4] <= '9';
  if (!known && (!like_910b || cores == 0)) return false;
  device->part = known ? *known : *tigon_sim_soc_find("910B4");
  if (!known) snprintf(device->part.name, sizeof device->part.name, "%.15s", name);
  device->soc = &device->part;
  tigon_device_desc *to = &device->part.device;
  if (cores > 0 && cores <= MOST_CORES) to->cores = cores;
  if (bytes > 0 && bytes < to->onchip_bytes) to->onchip_bytes = bytes / to->onchip_alignment * to->onchip_alignment;
  return true;
}

/* The kernels' array in UB has a fixed size (aicore_device.h), which all these parts have. */
static tigon_status override_part(tigon_queue *queue, ascend_device *device) {
  if (tigon_ascend_override(&device->part.device, device->part.device.onchip_bytes, &queue->reason)) return TIGON_OK;
  snprintf(device->npu->reason, sizeof device->npu->reason, "%s", queue->reason);
  return TIGON_ERROR_INVALID;
}

static tigon_status find_part(tigon_queue *queue, ascend_device *device) {
  ascend_npu *npu = device->npu;
  const char *name = tigon_ascend_part_name(npu->acl->get_soc_name());
  if (name && describe_part(device, name)) {
    const tigon_status status = override_part(queue, device);
    ascend_describe(device);
    return status;
  }
  snprintf(npu->reason, sizeof npu->reason, "%s says %.60s; there are kernels for 910B1 to 910B4 and 910_93",
           getenv("TIGON_ASCEND_PART") ? "TIGON_ASCEND_PART" : "aclrtGetSocName", name ? name : "nothing");
  queue->reason = npu->reason;
  return TIGON_ERROR_DEVICE;
}

static tigon_status cannot_read(tigon_queue *queue, ascend_npu *npu, const char *path) {
  snprintf(npu->reason, sizeof npu->reason, "the file of kernels %.160s cannot be read (TIGON_ASCEND_KERNELS)", path);
  queue->reason = npu->reason;
  return TIGON_ERROR_DEVICE;
}

/* The file's bytes stay until the queue closes. */
static bool read_image(ascend_npu *npu, FILE *file, size_t *bytes) {
  long length = -1;
  if (fseek(file, 0, SEEK_END) == 0) length = ftell(file);
  *bytes = length > 0 ? (size_t)length : 0;
  npu->image = length > 0 ? malloc(*bytes) : NULL;
  return npu->image && fseek(file, 0, SEEK_SET) == 0 && fread(npu->image, 1, *bytes, file) == *bytes;
}

static int load_binary(ascend_npu *npu, const char *path, size_t bytes, acl_load_options *options) {
  npu->binary = NULL;
  return npu->acl->binary_load_from_file ? npu->acl->binary_load_from_file(path, options, &npu->binary)
                                         : npu->acl->binary_load_from_data(npu->image, bytes, options, &npu->binary);
}

/* The runtime is told that the kernels are a vector core's, because not every compiler writes that into the file; one that takes
 * no such option finds out by itself. It wants an absolute path. */
static tigon_status load_kernels(tigon_queue *queue, ascend_npu *npu) {
  enum { REFUSED = 100000, REFUSED_BY_RUNTIME = 107000, UNKNOWN_FEATURE = 207000 };
  acl_load_option magic = {.type = ACL_LOAD_MAGIC, .value = {.magic = ACL_MAGIC_VECTOR_CORE}};
  acl_load_options options = {&magic, 1};
  const char *given = getenv("TIGON_ASCEND_KERNELS");
  char *path = realpath(given ? given : "", NULL);
  FILE *file = path ? fopen(path, "rb") : NULL;
  size_t bytes = 0;
  const bool from_file = npu->acl->binary_load_from_file,
             readable = file && (from_file || read_image(npu, file, &bytes));
  if (file) fclose(file);
  int code = readable ? load_binary(npu, path, bytes, &options) : ACL_OK;
  if (code == REFUSED || code == REFUSED_BY_RUNTIME || code == UNKNOWN_FEATURE)
    code = load_binary(npu, path, bytes, NULL);
  free(path);
  if (!readable) return cannot_read(queue, npu, given ? given : "");
  return ascend_check(queue, npu, code, from_file ? "aclrtBinaryLoadFromFile" : "aclrtBinaryLoadFromData");
}

static tigon_status allocate(tigon_queue *queue, ascend_npu *npu, size_t bytes, void **memory) {
  return ascend_check(queue, npu, npu->acl->malloc(memory, bytes, ACL_MALLOC_HUGE_FIRST), "aclrtMalloc");
}

static tigon_status open_stream(tigon_queue *queue, ascend_npu *npu) {
  npu->stream = queue->stream;
  if (npu->stream) return TIGON_OK;
  const tigon_status status = ascend_check(queue, npu, npu->acl->create_stream(&npu->stream), "aclrtCreateStream");
  npu->owns_stream = status == TIGON_OK;
  return status;
}

/* Where kernels say that an index was out of range, when the caller gave no place. */
static tigon_status open_flag(tigon_queue *queue, ascend_npu *npu) {
  void *flag;
  const tigon_status status = allocate(queue, npu, sizeof(int32_t), &flag);
  if (status != TIGON_OK) return status;
  queue->error_flag = flag;
  return ascend_check(queue, npu, npu->acl->memset_async(flag, sizeof(int32_t), 0, sizeof(int32_t), npu->stream),
                      "aclrtMemsetAsync");
}

static tigon_status open_on_device(tigon_queue *queue, ascend_device *device) {
  ascend_npu *npu = device->npu;
  void *scratch = NULL;
  tigon_status status = find_part(queue, device);
  if (status == TIGON_OK) status = open_stream(queue, npu);
  if (status == TIGON_OK) status = load_kernels(queue, npu);
  if (status == TIGON_OK) status = allocate(queue, npu, ASCEND_SCRATCH_BYTES, &scratch);
  device->scratch = scratch;
  if (status == TIGON_OK && npu->aclnn) status = allocate(queue, npu, ASCEND_PRODUCT_BYTES, &npu->products);
  return status == TIGON_OK ? open_flag(queue, npu) : status;
}

/* Waits first: what is enqueued uses all of it. */
static void close_on_device(tigon_queue *queue, ascend_device *device) {
  ascend_npu *npu = device->npu;
  if (npu->stream) npu->acl->synchronize_stream(npu->stream);
  if (queue->error_flag) npu->acl->free(queue->error_flag);
  if (device->scratch) npu->acl->free(device->scratch);
  if (npu->products) npu->acl->free(npu->products);
  if (npu->begin) npu->acl->destroy_event(npu->begin);
  if (npu->end) npu->acl->destroy_event(npu->end);
  if (npu->binary) npu->acl->binary_unload(npu->binary);
  if (npu->owns_stream) npu->acl->destroy_stream(npu->stream);
  queue->error_flag = NULL;
}

static void npu_close(tigon_queue *queue) {
  ascend_device *device = ascend_of(queue);
  int32_t before;
  if (ascend_enter(queue, device->npu, &before) == TIGON_OK) close_on_device(queue, device);
  ascend_leave(device->npu, before);
  free(device->npu->image);
  free(device->npu);
  free(device);
}

static tigon_status npu_open(int index, tigon_queue *queue, const char **reason) {
  const acl_api *acl = ascend_acl(reason);
  if (!acl) return TIGON_ERROR_DEVICE;
  ascend_device *device = calloc(1, sizeof *device);
  ascend_npu *npu = calloc(1, sizeof *npu);
  *reason = "out of memory";
  if (!device || !npu) {
    free(device);
    free(npu);
    return TIGON_ERROR_OUT_OF_MEMORY;
  }
  *npu = (ascend_npu){.acl = acl, .aclnn = ascend_aclnn(), .attention = ascend_aclnn_attention(), .index = index};
  device->npu = npu;
  queue->state = device;
  queue->threads = 1;
  int32_t before;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK) status = open_on_device(queue, device);
  ascend_leave(npu, before);
  if (status == TIGON_OK) return TIGON_OK;
  snprintf(why, sizeof why, "%s", npu->reason);
  *reason = why;
  npu_close(queue);
  return status;
}

/* ---- work ---- */

static tigon_status npu_sync(tigon_queue *queue) {
  ascend_npu *npu = npu_of(queue);
  int32_t before;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK)
    status = ascend_check(queue, npu, npu->acl->synchronize_stream(npu->stream), "aclrtSynchronizeStream");
  ascend_leave(npu, before);
  return status;
}

static tigon_status npu_alloc(tigon_queue *queue, size_t bytes, void **memory) {
  ascend_npu *npu = npu_of(queue);
  int32_t before;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK) status = allocate(queue, npu, bytes, memory);
  ascend_leave(npu, before);
  return status;
}

static void npu_free(tigon_queue *queue, void *memory) {
  ascend_npu *npu = npu_of(queue);
  int32_t before;
  if (ascend_enter(queue, npu, &before) == TIGON_OK) {
    npu->acl->synchronize_stream(npu->stream); /* what is enqueued may use it */
    npu->acl->free(memory);
  }
  ascend_leave(npu, before);
}

static tigon_status npu_copy(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  ascend_npu *npu = npu_of(queue);
  int32_t before;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK)
    status = ascend_check(queue, npu, npu->acl->memcpy_async(to, bytes, from, bytes, ACL_COPY_BY_ADDRESS, npu->stream),
                          "aclrtMemcpyAsync");
  if (status == TIGON_OK)
    status = ascend_check(queue, npu, npu->acl->synchronize_stream(npu->stream), "aclrtSynchronizeStream");
  ascend_leave(npu, before);
  return status;
}

static tigon_status npu_fill(tigon_queue *queue, void *memory, int value, size_t bytes) {
  ascend_npu *npu = npu_of(queue);
  int32_t before;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK)
    status =
        ascend_check(queue, npu, npu->acl->memset_async(memory, bytes, value, bytes, npu->stream), "aclrtMemsetAsync");
  ascend_leave(npu, before);
  return status;
}

static tigon_status make_events(tigon_queue *queue, ascend_npu *npu) {
  tigon_status status = TIGON_OK;
  if (!npu->begin) status = ascend_check(queue, npu, npu->acl->create_event(&npu->begin), "aclrtCreateEvent");
  if (status == TIGON_OK && !npu->end)
    status = ascend_check(queue, npu, npu->acl->create_event(&npu->end), "aclrtCreateEvent");
  return status;
}

static tigon_status read_events(tigon_queue *queue, ascend_npu *npu, double *seconds) {
  float milliseconds = 0;
  tigon_status status = ascend_check(queue, npu, npu->acl->synchronize_event(npu->end), "aclrtSynchronizeEvent");
  if (status == TIGON_OK)
    status = ascend_check(queue, npu, npu->acl->event_elapsed_time(&milliseconds, npu->begin, npu->end),
                          "aclrtEventElapsedTime");
  *seconds = 1e-3 * (double)milliseconds;
  return status;
}

static tigon_status npu_time(tigon_queue *queue, bool begin, double *seconds) {
  ascend_npu *npu = npu_of(queue);
  int32_t before;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK) status = make_events(queue, npu);
  if (status == TIGON_OK)
    status = ascend_check(queue, npu, npu->acl->record_event(begin ? npu->begin : npu->end, npu->stream),
                          "aclrtRecordEvent");
  if (status == TIGON_OK && !begin) status = read_events(queue, npu, seconds);
  ascend_leave(npu, before);
  return status;
}

static const tigon_device *npu_describe(const tigon_queue *queue) { return &ascend_of(queue)->about; }
static ascend_plans *npu_plans(const tigon_queue *queue) { return &ascend_of(queue)->plans; }

/* The vendor's documents give an ulp for the 950, and nothing for these parts. */
static tigon_precision npu_precision(const tigon_queue *queue) {
  (void)queue;
  return (tigon_precision){1, true, true};
}

static const char *npu_gemm(const tigon_queue *queue) { return npu_of(queue)->aclnn ? "aclnn: no grade" : "none"; }

/* ---- launches ---- */

static tigon_status find_function(tigon_queue *queue, ascend_npu *npu, const char *name, void **function) {
  for (int i = 0; i < npu->function_count; ++i)
    if (strcmp(npu->functions[i].name, name) == 0) return *function = npu->functions[i].function, TIGON_OK;
  const tigon_status status =
      ascend_check(queue, npu, npu->acl->binary_get_function(npu->binary, name, function), "aclrtBinaryGetFunction");
  if (status == TIGON_OK && npu->function_count < ASCEND_FUNCTIONS) {
    npu->functions[npu->function_count].name = name;
    npu->functions[npu->function_count++].function = *function;
  }
  return status;
}

/* As runtimes before 8.5 take arguments: in a list of their own, which the launch gives back. */
static tigon_status launch_with_list(tigon_queue *queue, ascend_npu *npu, void *function, const void *arguments,
                                     size_t bytes, int64_t blocks) {
  const acl_api *acl = npu->acl;
  void *list = NULL, *handle = NULL;
  tigon_status status = ascend_check(queue, npu, acl->kernel_args_init(function, &list), "aclrtKernelArgsInit");
  if (status == TIGON_OK)
    status = ascend_check(queue, npu, acl->kernel_args_append(list, (void *)arguments, bytes, &handle),
                          "aclrtKernelArgsAppend");
  if (status == TIGON_OK) status = ascend_check(queue, npu, acl->kernel_args_finalize(list), "aclrtKernelArgsFinalize");
  if (status == TIGON_OK)
    status = ascend_check(queue, npu,
                          acl->launch_kernel_with_config(function, (uint32_t)blocks, npu->stream, NULL, list, NULL),
                          "aclrtLaunchKernelWithConfig");
  return status;
}

static tigon_status launch(tigon_queue *queue, ascend_npu *npu, void *function, const void *arguments, size_t bytes,
                           int64_t blocks) {
  const acl_api *acl = npu->acl;
  if (!acl->launch_kernel_with_host_args) return launch_with_list(queue, npu, function, arguments, bytes, blocks);
  return ascend_check(queue, npu,
                      acl->launch_kernel_with_host_args(function, (uint32_t)blocks, npu->stream, NULL,
                                                        (void *)arguments, bytes, NULL, 0),
                      "aclrtLaunchKernelWithHostArgs");
}

tigon_status ascend_npu_launch(tigon_queue *queue, ascend_npu *npu, const char *name, const void *arguments,
                               size_t bytes, int64_t blocks) {
  int32_t before;
  void *function = NULL;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK) status = find_function(queue, npu, name, &function);
  if (status == TIGON_OK) status = launch(queue, npu, function, arguments, bytes, blocks);
  ascend_leave(npu, before);
  return status;
}

tigon_status ascend_aclnn_enqueue(tigon_queue *queue, ascend_npu *npu, const char *call, aclnn_run *run, uint64_t bytes,
                                  void *executor) {
  if (bytes <= ASCEND_ACLNN_BYTES) {
    void *workspace = bytes ? (char *)npu->products + ASCEND_SUMS_BYTES : NULL;
    return ascend_check(queue, npu, run(workspace, bytes, executor, npu->stream), call);
  }
  npu->aclnn->set_executor_repeatable(executor);
  npu->aclnn->destroy_executor(executor);
  snprintf(npu->reason, sizeof npu->reason, "%s wants %llu bytes of workspace, must be at most %d", call,
           (unsigned long long)bytes, ASCEND_ACLNN_BYTES);
  queue->reason = npu->reason;
  return TIGON_ERROR_OUT_OF_MEMORY;
}

const tigon_backend tigon_npu_backend = {
    .abi = TIGON_BACKEND_ABI,
    .name = "npu",
    .count = npu_count,
    .variants = npu_variants,
    .open = npu_open,
    .close = npu_close,
    .sync = npu_sync,
    .alloc = npu_alloc,
    .free = npu_free,
    .copy = npu_copy,
    .fill = npu_fill,
    .describe = npu_describe,
    .plans = npu_plans,
    .precision = npu_precision,
    .time = npu_time,
    .gemm = npu_gemm,
};
