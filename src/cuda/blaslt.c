/* A product is planned once for its shape, dtypes, pitches and alignments; what is planned is kept in the context. */
#include "cuda/blaslt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/blaslt_api.h"

/* PLANS is a power of two. CANDIDATES: how many algorithms the heuristic is asked for. ALIGNMENT: bytes beyond which the library
 * is told nothing, so that the algorithm does not depend on where an allocator puts things; no kernel needs more. */
enum { PLANS = 512, TRIES = 8, WORDS = 8, CANDIDATES = 8, ALIGNMENT = 16 };

typedef struct key {
  int64_t word[WORDS];
} key;

typedef struct plan {
  key key;
  bool made;
  void *desc; /* NULL: the library has no kernel for it */
  void *a, *b, *c;
  blaslt_algorithm algorithm;
} plan;

typedef struct blaslt {
  const blaslt_api *api; /* NULL: the built-in product takes all */
  void *handle, *preference;
  size_t version;
  char sentence[96];
  plan plans[PLANS];
} blaslt;

/* ---- the context's ---- */

static bool asks_for_builtin(void) {
  const char *name = getenv("TIGON_GEMM");
  return name && strcmp(name, "builtin") == 0;
}

static bool set_up(blaslt *lt) {
  const blaslt_api *api = asks_for_builtin() ? NULL : cuda_blaslt_library();
  const uint32_t reduction = BLASLT_REDUCE_IN_F32;
  if (!api || api->create(&lt->handle) != BLASLT_SUCCESS) return false;
  lt->api = api;
  lt->version = api->get_version();
  if (api->matmul_preference_create(&lt->preference) != BLASLT_SUCCESS) return false;
  return api->matmul_preference_set_attribute(lt->preference, BLASLT_PREFER_REDUCTION, &reduction, sizeof reduction) ==
         BLASLT_SUCCESS;
}

static void close_handle(blaslt *lt) {
  if (lt->preference) lt->api->matmul_preference_destroy(lt->preference);
  if (lt->handle) lt->api->destroy(lt->handle);
  lt->api = NULL;
}

/* Made at the first use; the device is current. NULL: out of memory. */
static blaslt *state_of(cuda_device *device) {
  if (device->blaslt) return device->blaslt;
  blaslt *lt = calloc(1, sizeof *lt);
  if (!lt) return NULL;
  if (set_up(lt)) {
    snprintf(lt->sentence, sizeof lt->sentence,
             "cublaslt %zu.%zu.%zu: run_to_run; built-in: run_to_run, batch (mixed dtypes)", lt->version / 10000,
             lt->version / 100 % 100, lt->version % 100);
  } else {
    close_handle(lt);
    snprintf(lt->sentence, sizeof lt->sentence, "built-in: run_to_run, batch");
  }
  return device->blaslt = lt;
}

static void forget(const blaslt_api *api, plan *plan) {
  if (plan->desc) api->matmul_desc_destroy(plan->desc);
  if (plan->a) api->matrix_layout_destroy(plan->a);
  if (plan->b) api->matrix_layout_destroy(plan->b);
  if (plan->c) api->matrix_layout_destroy(plan->c);
  plan->desc = plan->a = plan->b = plan->c = NULL;
}

const char *cuda_blaslt_name(const tigon_queue *queue) {
  tigon_queue own = *queue; /* whose reason may change */
  bool pushed;
  const blaslt *lt = cuda_enter(&own, &pushed) == TIGON_OK ? state_of(cuda_of(queue)) : NULL;
  cuda_leave(&own, pushed);
  return lt ? lt->sentence : "none";
}

void cuda_blaslt_close(cuda_device *device) {
  blaslt *lt = device->blaslt;
  if (!lt) return;
  for (int i = 0; lt->api && i < PLANS; ++i) forget(lt->api, &lt->plans[i]);
  if (lt->api) close_handle(lt);
  free(lt);
  device->blaslt = NULL;
}

/* ---- plans ---- */

static int64_t alignment(const void *pointer) {
  const uintptr_t bits = (uintptr_t)pointer | ALIGNMENT;
  return (int64_t)(bits & -bits);
}

static int type_of(tigon_dtype dtype) {
  return dtype == TIGON_F32 ? BLASLT_R_F32 : dtype == TIGON_F16 ? BLASLT_R_F16 : BLASLT_R_BF16;
}

/* The pitch of a matrix with `rows` rows of `cols` elements in memory: that of a single row is free. */
static int64_t pitch_of(int64_t pitch, int64_t rows, int64_t cols) { return rows == 1 ? cols : pitch; }
static int64_t a_pitch(const cuda_gemm *p) {
  return p->a.transposed ? pitch_of(p->a.pitch, p->k, p->m) : pitch_of(p->a.pitch, p->m, p->k);
}
static int64_t b_pitch(const cuda_gemm *p) {
  return p->b.transposed ? pitch_of(p->b.pitch, p->n, p->k) : pitch_of(p->b.pitch, p->k, p->n);
}
static int64_t c_pitch(const cuda_gemm *p) { return pitch_of(p->c_pitch, p->m, p->n); }

/* Whether the library could have a kernel; it refuses more. */
static bool may_take(const cuda_gemm *p) {
  if (p->m == 0 || p->n == 0 || p->k == 0 || p->sums || p->a.dtype != p->b.dtype) return false;
  if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX) return false;
  if (p->c_dtype != p->a.dtype && p->c_dtype != TIGON_F32) return false;
  if (p->bias && (p->bias_dtype != p->c_dtype || alignment(p->bias) < ALIGNMENT)) return false;
  return a_pitch(p) >= (p->a.transposed ? p->m : p->k) && b_pitch(p) >= (p->b.transposed ? p->k : p->n) &&
         c_pitch(p) >= p->n;
}

static key key_of(const cuda_gemm *p, size_t workspace_bytes) {
  const int64_t kind = (int64_t)p->a.dtype | (int64_t)p->c_dtype << 4 | (int64_t)p->a.transposed << 8 |
                       (int64_t)p->b.transposed << 9 | (int64_t)(p->bias != NULL) << 10 | alignment(p->a.data) << 16 |
                       alignment(p->b.data) << 24 | alignment(p->c) << 32;
  return (key){{p->m, p->n, p->k, a_pitch(p), b_pitch(p), c_pitch(p), (int64_t)workspace_bytes, kind}};
}

static uint64_t hash_of(const key *k) {
  uint64_t hash = 0;
  for (int i = 0; i < WORDS; ++i) {
    hash = (hash ^ (uint64_t)k->word[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
  }
  return hash;
}

/* The plan's place: its own, a free one, or that of one which then makes room. */
static plan *place_of(blaslt *lt, const key *k) {
  const uint64_t first = hash_of(k);
  for (int i = 0; i < TRIES; ++i) {
    plan *plan = &lt->plans[(first + (uint64_t)i) % PLANS];
    if (!plan->made || memcmp(&plan->key, k, sizeof *k) == 0) return plan;
  }
  plan *oldest = &lt->plans[first % PLANS];
  forget(lt->api, oldest);
  oldest->made = false;
  return oldest;
}

/* A matrix of the library's in columns is ours in rows, so it makes c's transpose: from b's and a's. The heuristic looks at the
 * bias' alignment alone. */
static bool describe(const blaslt_api *api, const cuda_gemm *p, plan *plan) {
  const int32_t first = p->b.transposed, second = p->a.transposed, epilogue = BLASLT_EPILOGUE_BIAS;
  static const _Alignas(ALIGNMENT) char aligned[ALIGNMENT];
  const void *bias = aligned;
  const uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
  const int type = type_of(p->a.dtype);
  if (api->matmul_desc_create(&plan->desc, BLASLT_COMPUTE_F32, BLASLT_R_F32) != BLASLT_SUCCESS) return false;
  int failed = api->matmul_desc_set_attribute(plan->desc, BLASLT_DESC_TRANSPOSE_A, &first, sizeof first);
  failed |= api->matmul_desc_set_attribute(plan->desc, BLASLT_DESC_TRANSPOSE_B, &second, sizeof second);
  if (p->bias) {
    failed |= api->matmul_desc_set_attribute(plan->desc, BLASLT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    failed |= api->matmul_desc_set_attribute(plan->desc, BLASLT_DESC_BIAS, &bias, sizeof bias);
  }
  failed |= api->matrix_layout_create(&plan->a, type, first ? k : n, first ? n : k, b_pitch(p));
  failed |= api->matrix_layout_create(&plan->b, type, second ? m : k, second ? k : m, a_pitch(p));
  failed |= api->matrix_layout_create(&plan->c, type_of(p->c_dtype), n, m, c_pitch(p));
  return failed == BLASLT_SUCCESS;
}

/* Is it a product as the table of choices has them: of contiguous, aligned matrices? */
static bool is_plain(const cuda_gemm *p, uint64_t workspace_bytes) {
  return !p->bias && workspace_bytes == CUDA_SCRATCH_BYTES && alignment(p->a.data) == ALIGNMENT &&
         alignment(p->b.data) == ALIGNMENT && alignment(p->c) == ALIGNMENT &&
         a_pitch(p) == (p->a.transposed ? p->m : p->k) && b_pitch(p) == (p->b.transposed ? p->k : p->n) &&
         c_pitch(p) == p->n;
}

static bool choose(const blaslt *lt, const char *device, const cuda_gemm *p, uint64_t workspace_bytes, plan *plan) {
  const blaslt_api *api = lt->api;
  const void *const operands[] = {p->b.data, p->a.data, p->c, p->c};
  blaslt_found found[CANDIDATES];
  int count = 0;
  int failed = api->matmul_preference_set_attribute(lt->preference, BLASLT_PREFER_WORKSPACE, &workspace_bytes,
                                                    sizeof workspace_bytes);
  for (int i = 0; i < 4; ++i) {
    const uint32_t bytes = (uint32_t)alignment(operands[i]);
    failed |= api->matmul_preference_set_attribute(lt->preference, BLASLT_PREFER_ALIGNMENT_A + i, &bytes, sizeof bytes);
  }
  failed |= api->matmul_algo_get_heuristic(lt->handle, plan->desc, plan->a, plan->b, plan->c, plan->c, lt->preference,
                                           CANDIDATES, found, &count);
  if (failed != BLASLT_SUCCESS || count == 0) return false;
  const int wanted = is_plain(p, workspace_bytes) ? cuda_blaslt_choice(device, lt->version, p) : 0;
  const blaslt_found *one = &found[wanted < count ? wanted : 0];
  plan->algorithm = one->algorithm;
  return one->status == BLASLT_SUCCESS;
}

static plan *plan_of(cuda_device *device, blaslt *lt, const cuda_gemm *p, size_t workspace_bytes) {
  const key k = key_of(p, workspace_bytes);
  plan *plan = place_of(lt, &k);
  if (plan->made) return plan;
  plan->key = k;
  plan->made = true;
  if (!describe(lt->api, p, plan) || !choose(lt, device->desc.name, p, workspace_bytes, plan)) forget(lt->api, plan);
  return plan;
}

/* ---- a product ---- */

static int run(const blaslt *lt, void *stream, const cuda_gemm *p, const plan *plan, void *workspace, size_t bytes) {
  const float one = 1, beta = p->accumulate ? 1 : 0;
  const int status = p->bias
                         ? lt->api->matmul_desc_set_attribute(plan->desc, BLASLT_DESC_BIAS, &p->bias, sizeof p->bias)
                         : BLASLT_SUCCESS;
  if (status != BLASLT_SUCCESS) return status;
  return lt->api->matmul(lt->handle, plan->desc, &one, p->b.data, plan->a, p->a.data, plan->b, &beta, p->c, plan->c,
                         p->c, plan->c, &plan->algorithm, workspace, bytes, stream);
}

static tigon_status enqueue(tigon_queue *queue, const cuda_gemm *p, void *workspace, size_t bytes, bool *taken) {
  cuda_device *device = cuda_of(queue);
  blaslt *lt = state_of(device);
  if (!lt || !lt->api) return TIGON_OK;
  plan *plan = plan_of(device, lt, p, bytes);
  if (!plan->desc) return TIGON_OK;
  const int status = run(lt, queue->stream, p, plan, workspace, bytes);
  if (status == BLASLT_INVALID_VALUE || status == BLASLT_NOT_SUPPORTED) {
    forget(lt->api, plan);
    return TIGON_OK;
  }
  *taken = true;
  if (status == BLASLT_SUCCESS) return TIGON_OK;
  snprintf(device->reason, sizeof device->reason, "cublasLtMatmul returned %d (%s)", status,
           lt->api->get_status_name(status));
  queue->reason = device->reason;
  return TIGON_ERROR_DEVICE;
}

tigon_status cuda_blaslt_gemm(tigon_queue *queue, const cuda_gemm *p, void *workspace, size_t bytes, bool *taken) {
  *taken = false;
  if (!may_take(p)) return TIGON_OK;
  if (queue->record) { /* as though the library is there and takes what it may */
    *taken = !asks_for_builtin();
    if (*taken) queue->record(queue->record_to, &(tigon_launch){.kernel = "cublasLtMatmul", .grid = 1});
    return TIGON_OK;
  }
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK) status = enqueue(queue, p, workspace, bytes, taken);
  cuda_leave(queue, pushed);
  return status;
}
