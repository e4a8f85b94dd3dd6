/* The memory that a case works on. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { BLOCK = 1 << 19 }; /* elements of the random block that fills the tensors over and over */

/* xorshift64*: the same numbers on every machine. */
static uint64_t next_random(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

/* `count` numbers in (-1, 1), none of them denormal. */
static void random_block(void *block, tigon_dtype dtype, int64_t count) {
  uint64_t state = 42;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = next_random(&state);
    const float value = (float)(bits >> 40) / 8388608.0f - 0.99999994f;
    uint32_t pattern;
    memcpy(&pattern, &value, sizeof pattern);
    if (dtype == TIGON_F32)
      ((uint32_t *)block)[i] = pattern;
    else if (dtype == TIGON_BF16)
      ((uint16_t *)block)[i] = (uint16_t)(pattern >> 16);
    else
      ((uint16_t *)block)[i] = (uint16_t)((bits >> 63) << 15 | (10 + (bits >> 40) % 5) << 10 | (bits >> 20 & 1023));
  }
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Device memory filled with `block`, over and over. */
static tigon_status make(bench_data *data, void **memory, size_t bytes, const void *block, size_t block_bytes) {
  const tigon_status status = tigon_alloc(data->context, bytes, memory);
  if (status != TIGON_OK) return status;
  for (size_t done = 0; done < bytes; done += block_bytes) {
    const size_t part = bytes - done < block_bytes ? bytes - done : block_bytes;
    const tigon_status copied = tigon_copy(data->context, (char *)*memory + done, block, part);
    if (copied != TIGON_OK) return copied;
  }
  return TIGON_OK;
}

/* Of one tensor: the largest of [rows, cols], [other, cols] and [rows, other]. */
static size_t tensor_bytes(const bench_data *data, const bench_case *chosen) {
  const size_t widest = chosen->flags & BENCH_F32_INSIDE ? 4 : tigon_dtype_size(data->dtype);
  const int64_t wide = most(data->rows, data->other) * data->cols;
  return (size_t)most(wide, data->rows * data->other) * widest;
}
static size_t column_bytes(const bench_data *data) { return (size_t)most(data->cols, data->other) * 4; }
static size_t row_bytes(const bench_data *data) { return (size_t)(data->rows * (data->cols / 64 + 1)) * 4; }

size_t bench_data_bytes(const bench_data *data, const bench_case *chosen) {
  return (size_t)chosen->tensors * tensor_bytes(data, chosen) + BENCH_VECTORS * (column_bytes(data) + row_bytes(data)) +
         (size_t)data->rows * 8;
}

static tigon_status make_all(bench_data *data, const bench_case *chosen, void *block) {
  const size_t element = tigon_dtype_size(data->dtype), bytes = tensor_bytes(data, chosen);
  const size_t column = column_bytes(data), row = row_bytes(data);
  tigon_status status = TIGON_OK;
  random_block(block, data->dtype, BLOCK);
  for (int i = 0; i < chosen->tensors && status == TIGON_OK; ++i)
    status = make(data, &data->tensor[i], bytes, block, BLOCK * element);
  random_block(block, TIGON_F32, BLOCK);
  for (int i = 0; i < BENCH_VECTORS && status == TIGON_OK; ++i) {
    status = make(data, (void **)&data->column[i], column, block, BLOCK * 4);
    if (status == TIGON_OK) status = make(data, (void **)&data->row[i], row, block, BLOCK * 4);
  }
  uint64_t state = 42;
  const uint64_t limit = (uint64_t)(data->other ? data->other : data->cols);
  for (int64_t i = 0; i < BLOCK / 2; ++i) ((int64_t *)block)[i] = (int64_t)(next_random(&state) % limit);
  return status == TIGON_OK ? make(data, (void **)&data->index, (size_t)data->rows * 8, block, BLOCK * 4) : status;
}

tigon_status bench_data_open(bench_data *data, const bench_case *chosen) {
  void *block = malloc(BLOCK * 4);
  if (!block) return TIGON_ERROR_OUT_OF_MEMORY;
  const tigon_status status = make_all(data, chosen, block);
  free(block);
  if (status != TIGON_OK) bench_data_close(data);
  return status;
}

tigon_status bench_data_grant(bench_data *data) {
  const tigon_status status = tigon_alloc(data->context, data->workspace_need, &data->workspace);
  data->workspace_bytes = status == TIGON_OK ? data->workspace_need : 0;
  return status == TIGON_OK && data->workspace ? tigon_fill(data->context, data->workspace, 0, data->workspace_bytes)
                                               : status;
}

void bench_data_close(bench_data *data) {
  for (int i = 0; i < BENCH_TENSORS; ++i) tigon_free(data->context, data->tensor[i]);
  for (int i = 0; i < BENCH_VECTORS; ++i)
    tigon_free(data->context, data->column[i]), tigon_free(data->context, data->row[i]);
  tigon_free(data->context, data->index);
  tigon_free(data->context, data->workspace);
}
