/* The safetensors format (https://github.com/huggingface/safetensors): a little-endian u64 length, that many bytes of JSON
 *   {"__metadata__": {"key": "text", ...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 * then the tensors' bytes. A reader that trusts nothing: every offset, shape and size is checked before it is used. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include <jansson.h>
#include <stdint.h>

#include "file.h"

enum { TRAIN_SAFETENSOR_DIMS = 8 };

typedef struct train_safetensor {
  const char *name;  /* in a reader: borrowed from it */
  const char *dtype; /* "F32", "I64", ... */
  int ndim;
  int64_t shape[TRAIN_SAFETENSOR_DIMS];
  int64_t offset, bytes; /* place of the data, from the beginning of all data */
} train_safetensor;

typedef struct train_safetensors {
  int file;
  char path[TRAIN_PATH];
  json_t *header;
  int64_t data;              /* file offset of the first tensor */
  train_safetensor *tensors; /* in the order of their offsets */
  int64_t count;
} train_safetensors;

/* Opens and checks: the length, the JSON, names given once, dtypes, shapes, sizes that match the offsets, tensors that
 * follow each other without gap or overlap and end where the file ends. */
bool train_safetensors_open(const char *path, train_safetensors *reader, train_error *error);
void train_safetensors_close(train_safetensors *reader);

/* NULL when there is none. */
const train_safetensor *train_safetensors_find(const train_safetensors *reader, const char *name);
const char *train_safetensors_metadata(const train_safetensors *reader, const char *key);

/* The tensor with this dtype and shape, or the sentence that says what it is instead. */
const train_safetensor *train_safetensors_expect(const train_safetensors *reader, const char *name, const char *dtype,
                                                 int ndim, const int64_t *shape, train_error *error);

/* Bytes [first, first + count) of a tensor. */
bool train_safetensors_read(const train_safetensors *reader, const train_safetensor *tensor, int64_t first,
                            int64_t count, void *to, train_error *error);

/* Writes path.tmp and flushes it to the disk; train_file_commit() gives it its name. `fill` yields bytes
 * [first, first + count) of tensor `index`, asked for in order. Offsets in `tensors` are set. `metadata`: an object of
 * strings, borrowed. */
typedef bool (*train_safetensors_fill)(void *user, int64_t index, int64_t first, int64_t count, void *to,
                                       train_error *error);
bool train_safetensors_write(const char *path, train_safetensor *tensors, int64_t count, json_t *metadata,
                             train_safetensors_fill fill, void *user, train_error *error);

/* Bytes of an element, 0 for a dtype that the format does not have. */
int64_t train_safetensors_element(const char *dtype);

#endif
