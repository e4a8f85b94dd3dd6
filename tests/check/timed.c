/* Memory and calls of the cases that are timed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/cases.h"
#include "check/internal.h"
#include "core/context.h"
#include "core/half.h"

/* xorshift64*: the same numbers on every machine. */
static uint64_t next_random(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

/* Numbers in (-factor, factor), none of them denormal; of 8 bits any. */
static void random_block(void *block, tigon_dtype dtype, int64_t count, double factor, uint64_t state) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = next_random(&state);
    const float value = (float)(bits >> 40) / 8388608.0f - 0.99999994f;
    uint32_t pattern;
    memcpy(&pattern, &value, sizeof pattern);
    if (tigon_dtype_size(dtype) == 1)
      ((uint8_t *)block)[i] = (uint8_t)(bits >> 56);
    else if (dtype == TIGON_F32)
      ((uint32_t *)block)[i] = pattern;
    else if (dtype == TIGON_BF16)
      ((uint16_t *)block)[i] = (uint16_t)(pattern >> 16);
    else
      ((uint16_t *)block)[i] = (uint16_t)((bits >> 63) << 15 | (10 + (bits >> 40) % 5) << 10 | (bits >> 20 & 1023));
  }
  for (int64_t i = 0; factor != 1 && i < count; ++i)
    tigon_store_f64(block, i, dtype, tigon_load_f64(block, i, dtype) * factor);
}

/* The buffer of that name and size, made when there is none yet and room for it; *fresh says whether it is to be filled. What
 * is `listed` is the host's, and there is always room for it. */
static check_buffer *find_or_make(check *k, const char *name, size_t bytes, bool listed, bool *fresh) {
  *fresh = false;
  for (int i = 0; i < k->count; ++i)
    if (k->buffers[i].bytes == bytes && strcmp(k->buffers[i].name, name) == 0) return &k->buffers[i];
  check_buffer *b = check_add_buffer(k);
  *b = (check_buffer){.name = name, .bytes = bytes, .role = listed ? CHECK_ROLE_SCRATCH : CHECK_ROLE_WORKSPACE};
  k->timed->held += bytes;
  void *memory = NULL;
  if (listed)
    memory = calloc(1, bytes);
  else if (k->timed->held <= k->timed->most && tigon_alloc(k->context, bytes, &memory) == TIGON_OK)
    *fresh = memory != NULL;
  b->start = memory;
  return b;
}

void *check_timed_memory(check *k, const char *name, size_t bytes, bool listed) {
  bool fresh;
  const check_buffer *b = find_or_make(k, name, bytes, listed, &fresh);
  if (fresh && !k->context->queue.record) (void)tigon_fill(k->context, b->start, 0, bytes);
  return b->start;
}

static tigon_tensor new_tensor(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                               check_role role, bool *fresh) {
  tigon_tensor t = {.dtype = dtype, .ndim = ndim};
  int64_t count = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    t.shape[i] = shape[i];
    t.strides[i] = count;
    count *= shape[i];
  }
  const size_t bytes = (size_t)count * tigon_dtype_size(dtype);
  check_buffer *b = k->twist ? check_huge_buffer(k, name, &t, role, fresh) : find_or_make(k, name, bytes, false, fresh);
  b->role = role;
  b->tensor = t;
  t.data = b->tensor.data = b->start;
  if (role != CHECK_ROLE_OUT) k->timed->read += (double)bytes;
  if (role != CHECK_ROLE_IN) k->timed->written += (double)bytes;
  return t;
}

/* One block of random elements, over and over; of the huge sweep's inputs the same pages hold it everywhere. Else its length is a
 * prime, so that rows and planes are not alike. */
static void fill(check *k, const tigon_tensor *t, bool once, double factor) {
  const int64_t page = 4096, less = !k->twist ? 1 : once ? 0 : page; /* with a twist as map_repeated's */
  const int64_t block = CHECK_BLOCK - less;
  const int64_t count = check_elements(t), most = count < block ? count : block;
  const size_t size = tigon_dtype_size(t->dtype), bytes = (size_t)(once ? most : count) * size;
  const size_t step = (size_t)most * size;
  void *random = check_need(malloc(step + 1));
  random_block(random, t->dtype, most, factor, 42 + (uint64_t)k->count);
  for (size_t done = 0; done < bytes; done += step)
    (void)tigon_copy(k->context, (char *)t->data + done, random, bytes - done < step ? bytes - done : step);
  free(random);
}

tigon_tensor check_timed_tensor(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                                check_role role, double factor) {
  bool fresh;
  const tigon_tensor t = new_tensor(k, name, dtype, ndim, shape, role, &fresh);
  /* Where launches are recorded, no kernel reads it. */
  if (fresh && !k->context->queue.record) fill(k, &t, k->twist && role == CHECK_ROLE_IN && !check_is_away(k), factor);
  return t;
}

tigon_tensor check_timed_indices(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                                 int64_t low, int64_t high) {
  bool fresh;
  const tigon_tensor t = new_tensor(k, name, dtype, ndim, shape, CHECK_ROLE_IN, &fresh);
  const int64_t count = fresh ? check_elements(&t) : 0;
  uint64_t state = 42;
  const size_t size = tigon_dtype_size(dtype);
  char *values = check_need(malloc((size_t)count * size + 1));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t v = low + (int64_t)(next_random(&state) % (uint64_t)(high - low));
    if (dtype == TIGON_I64)
      ((int64_t *)(void *)values)[i] = v;
    else
      ((int32_t *)(void *)values)[i] = (int32_t)v;
  }
  if (count) (void)tigon_copy(k->context, t.data, values, (size_t)count * size);
  free(values);
  return t;
}

double check_input(const check *k, const tigon_tensor *t, int64_t index) {
  if (!k->timed || !check_is_away(k)) return check_value(t, index);
  int64_t word = 0;
  const size_t size = tigon_dtype_size(t->dtype);
  (void)tigon_copy(k->context, &word, (const char *)t->data + (size_t)index * size, size);
  const tigon_tensor one = {.data = &word, .dtype = t->dtype, .ndim = 1, .shape = {1}, .strides = {1}};
  return check_value(&one, 0);
}

void check_make_positive(check *k, const tigon_tensor *vector) {
  const size_t bytes = (size_t)vector->shape[0] * sizeof(float);
  const bool away = k->timed && check_is_away(k); /* other runs' buffers are the host's until they are sent */
  if (!vector->data) return;
  float *values = away ? check_need(malloc(bytes)) : vector->data;
  if (away) (void)tigon_copy(k->context, values, vector->data, bytes);
  for (int64_t i = 0; i < vector->shape[0]; ++i) values[i] = fabsf(values[i]);
  if (!away) return;
  (void)tigon_copy(k->context, vector->data, values, bytes);
  free(values);
}

void check_reads_rows(check *k, const tigon_tensor *t, int64_t rows) {
  if (k->timed && rows < t->shape[0])
    k->timed->read -= (double)((t->shape[0] - rows) * t->shape[1]) * (double)tigon_dtype_size(t->dtype);
}

/* ---- a case ---- */

static int entry_of(const char *op, const char *entry) {
  for (int i = 0; tigon_entry_at(i); ++i)
    if (strcmp(tigon_entry_at(i)->op, op) == 0 && strcmp(tigon_entry_at(i)->entry, entry) == 0) return i;
  return -1;
}

static double depth_of(const bench_case *chosen, const bench_point *at) {
  return chosen->depth ? chosen->depth(at) : (double)(at->other ? at->other : at->rows);
}
static double products_of(const bench_case *chosen, bench_mode mode, unsigned forms) {
  const bool more = forms & BENCH_BIT(BENCH_RECOMPUTE), less = forms & BENCH_BIT(BENCH_CACHE);
  return chosen->products[mode] + (mode == BENCH_FWD ? 0 : chosen->again * (more - less));
}

/* Runs the check's function of one mode, which ends at its call. False: no memory for the arguments. */
static bool prepare(bench_data *data, bench_mode mode, const bench_point *at, check_timed *timed) {
  struct bench_mode_data *m = &data->mode[mode];
  check *k = &data->memory;
  timed->read = timed->written = 0;
  timed->workspace_bytes = 0;
  timed->args = NULL;
  k->timed = timed;
  k->point = at;
  k->entry = m->entry;
  k->option = data->chosen->option[mode];
  check_entry_run(k);
  m->args = timed->args;
  m->workspace_bytes = timed->workspace_bytes;
  m->bytes = timed->read + timed->written;
  m->reads_only = timed->written < timed->read / 16;
  if (mode <= BENCH_FULL)
    m->flops = products_of(data->chosen, mode, at->forms) * 2 * (double)at->rows * (double)at->cols *
               depth_of(data->chosen, at);
  return m->args != NULL;
}

/* Forward, then backward. */
static void combine(bench_data *data) {
  const struct bench_mode_data *f = &data->mode[BENCH_FWD], *b = &data->mode[BENCH_BWD];
  struct bench_mode_data *m = &data->mode[BENCH_FULL];
  m->bytes = f->bytes + b->bytes;
  m->flops = f->flops + b->flops;
  m->workspace_bytes = f->workspace_bytes > b->workspace_bytes ? f->workspace_bytes : b->workspace_bytes;
}

tigon_status bench_data_open(bench_data *data, const bench_case *chosen, tigon_context *context, tigon_dtype dtype,
                             const bench_point *at, size_t most_bytes) {
  check_timed timed = {.most = most_bytes};
  bool there = true;
  *data = (bench_data){.chosen = chosen, .memory = {.context = context, .dtype = dtype}};
  bench_dims(chosen, at, data->memory.dims);
  for (bench_mode mode = 0; mode < BENCH_MODES; ++mode) {
    const bool in_one = mode == BENCH_FULL && chosen->full_in_one;
    data->mode[mode].entry = entry_of(chosen->op, in_one ? "fwd" : bench_mode_name(mode));
    if (data->mode[mode].entry >= 0) there = prepare(data, mode, at, &timed) && there;
  }
  if (!chosen->full_in_one) combine(data);
  data->bytes = timed.held;
  data->memory.timed = NULL;
  data->memory.point = NULL;
  for (int i = 0; i < data->memory.count; ++i)
    there = there && (data->memory.buffers[i].start || !data->memory.buffers[i].bytes);
  if (!there) bench_data_close(data);
  return there ? TIGON_OK : TIGON_ERROR_OUT_OF_MEMORY;
}

tigon_status bench_call(const bench_data *data, bench_mode mode) {
  const struct bench_mode_data *m = &data->mode[mode];
  if (m->entry >= 0) return check_entry_call(m->entry, data->memory.context, m->args);
  if (mode != BENCH_FULL) return TIGON_ERROR_UNSUPPORTED;
  const tigon_status status = bench_call(data, BENCH_FWD);
  return status == TIGON_OK ? bench_call(data, BENCH_BWD) : status;
}

void bench_data_close(bench_data *data) {
  for (int i = 0; i < data->memory.count; ++i) {
    if (data->memory.buffers[i].role == CHECK_ROLE_SCRATCH)
      free(data->memory.buffers[i].start);
    else
      tigon_free(data->memory.context, data->memory.buffers[i].start);
  }
  free(data->memory.buffers);
  data->memory.buffers = NULL;
  data->memory.count = 0;
  for (int i = 0; i < BENCH_MODES; ++i) free(data->mode[i].args), data->mode[i].args = NULL;
}
