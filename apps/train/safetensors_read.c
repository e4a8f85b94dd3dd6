#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json_memory.h"
#include "safetensors.h"

enum { HEADER_LIMIT = 16 << 20 /* bytes of JSON, some 100 000 tensors */ };

int64_t train_safetensors_element(const char *dtype) {
  static const struct {
    const char *name;
    int64_t bytes;
  } sizes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},
               {"I16", 2}, {"I8", 1},  {"U64", 8}, {"U32", 4},  {"U16", 2},     {"U8", 1},      {"BOOL", 1}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
    if (strcmp(sizes[i].name, dtype) == 0) return sizes[i].bytes;
  return 0;
}

/* "<path> is no usable safetensors file: <what>", for tensor `name` unless NULL. */
static bool refuse(const train_safetensors *reader, const char *name, const char *what, train_error *error) {
  if (!name) return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable checkpoint: %s", reader->path, what);
  return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable checkpoint: tensor \"%.100s\" %s", reader->path, name,
                    what);
}

static bool read_at(const train_safetensors *reader, int64_t offset, size_t count, void *to, train_error *error) {
  char *next = to;
  while (count > 0) {
    const ssize_t got = pread(reader->file, next, count, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot read %s: %s", reader->path, strerror(errno));
    if (got == 0) return refuse(reader, NULL, "it became shorter while it was read", error);
    next += got;
    offset += got;
    count -= (size_t)got;
  }
  return true;
}

/* A whole number that is not negative; -1 otherwise. */
static int64_t whole(const json_t *value) {
  return json_typeof(value) == JSON_INTEGER && json_integer_value(value) >= 0 ? (int64_t)json_integer_value(value) : -1;
}

/* One entry of the header; `room` is the number of bytes of data. */
static bool parse_tensor(const train_safetensors *reader, const char *name, json_t *value, int64_t room,
                         train_safetensor *tensor, train_error *error) {
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  const json_t *shape = json_object_get(value, "shape"), *offsets = json_object_get(value, "data_offsets");
  if (!dtype || !json_is_array(shape) || !json_is_array(offsets) || json_array_size(offsets) != 2)
    return refuse(reader, name, "lacks a dtype, a shape or two data_offsets", error);
  const int64_t element = train_safetensors_element(dtype);
  if (element == 0) return refuse(reader, name, "has an unknown dtype", error);
  if (json_array_size(shape) > TRAIN_SAFETENSOR_DIMS) return refuse(reader, name, "has over 8 dimensions", error);

  *tensor = (train_safetensor){.name = name, .dtype = dtype, .ndim = (int)json_array_size(shape)};
  int64_t bytes = element;
  for (int d = 0; d < tensor->ndim; ++d) {
    tensor->shape[d] = whole(json_array_get(shape, (size_t)d));
    if (tensor->shape[d] < 0) return refuse(reader, name, "has a shape that is not of whole numbers >= 0", error);
    if (tensor->shape[d] > 0 && bytes > INT64_MAX / tensor->shape[d])
      return refuse(reader, name, "has a shape whose size overflows", error);
    bytes *= tensor->shape[d];
  }
  const int64_t begin = whole(json_array_get(offsets, 0)), end = whole(json_array_get(offsets, 1));
  if (begin < 0 || end < begin) return refuse(reader, name, "has data_offsets that are no range", error);
  if (end > room) return refuse(reader, name, "ends behind the file's end (truncated?)", error);
  if (end - begin != bytes)
    return refuse(reader, name, "has data_offsets that do not match its dtype and shape", error);
  tensor->offset = begin;
  tensor->bytes = bytes;
  return true;
}

static int by_offset(const void *a, const void *b) {
  const train_safetensor *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool check_metadata(const train_safetensors *reader, train_error *error) {
  json_t *metadata = json_object_get(reader->header, "__metadata__"), *value;
  const char *key;
  if (!metadata) return true;
  if (json_typeof(metadata) != JSON_OBJECT) return refuse(reader, NULL, "its __metadata__ is no object", error);
  json_object_foreach(metadata, key, value) { /* GCOVR_EXCL_BR_LINE a key of jansson has a value */
    if (json_typeof(value) != JSON_STRING)
      return refuse(reader, NULL, "its __metadata__ holds something that is no text", error);
  }
  return true;
}

static bool parse_header(train_safetensors *reader, int64_t room, train_error *error) {
  const char *name;
  json_t *value;
  reader->tensors = calloc(json_object_size(reader->header) + 1, sizeof *reader->tensors);
  if (!reader->tensors) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the header of %s", reader->path);
  if (!check_metadata(reader, error)) return false;
  json_object_foreach(reader->header, name, value) { /* GCOVR_EXCL_BR_LINE the same */
    if (strcmp(name, "__metadata__") == 0) continue;
    if (!parse_tensor(reader, name, value, room, &reader->tensors[reader->count++], error)) return false;
  }
  qsort(reader->tensors, (size_t)reader->count, sizeof *reader->tensors, by_offset);
  int64_t end = 0;
  for (int64_t i = 0; i < reader->count; ++i) {
    if (reader->tensors[i].offset != end)
      return refuse(reader, reader->tensors[i].name,
                    reader->tensors[i].offset < end ? "overlaps another" : "leaves a gap before it", error);
    end += reader->tensors[i].bytes;
  }
  if (end == room) return true;
  return refuse(reader, NULL, "there are bytes behind its last tensor", error);
}

static bool load(train_safetensors *reader, train_error *error) {
  struct stat status;
  uint8_t head[8];
  uint64_t length = 0;
  if (fstat(reader->file, &status) != 0 || !S_ISREG(status.st_mode))
    return refuse(reader, NULL, "it is not a file", error);
  if (status.st_size < 8) return refuse(reader, NULL, "it has fewer than 8 bytes", error);
  if (!read_at(reader, 0, sizeof head, head, error)) return false;
  for (int i = 7; i >= 0; --i) length = length << 8 | head[i];
  if (length > HEADER_LIMIT || length > (uint64_t)status.st_size - 8)
    return train_fail(error, TRAIN_EXIT_TROUBLE,
                      "%s is no usable checkpoint: its header says %" PRIu64 " bytes of JSON, must be at most %" PRId64,
                      reader->path, length,
                      status.st_size - 8 < HEADER_LIMIT ? (int64_t)status.st_size - 8 : (int64_t)HEADER_LIMIT);
  char *text = malloc((size_t)length + 1);
  if (!text) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the header of %s", reader->path);
  json_error_t wrong;
  bool good = read_at(reader, 8, (size_t)length, text, error);
  if (good) {
    train_json_begin();
    reader->header = train_json_whole(json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &wrong));
    if (!reader->header && train_json_lacked())
      good = train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the header of %s", reader->path);
    else if (!reader->header)
      good = train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable checkpoint: its JSON is broken at byte %d: %.120s",
                        reader->path, wrong.position, wrong.text);
    else if (json_typeof(reader->header) != JSON_OBJECT)
      good = refuse(reader, NULL, "its JSON is no object", error);
  }
  free(text);
  reader->data = 8 + (int64_t)length;
  return good && parse_header(reader, (int64_t)status.st_size - reader->data, error);
}

bool train_safetensors_open(const char *path, train_safetensors *reader, train_error *error) {
  *reader = (train_safetensors){.file = -1};
  if (strlen(path) >= TRAIN_PATH)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "the checkpoint's path is longer than %d bytes", TRAIN_PATH - 1);
  strcpy(reader->path, path);
  reader->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block before it is refused */
  if (reader->file < 0) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
  if (load(reader, error)) return true;
  train_safetensors_close(reader);
  return false;
}

void train_safetensors_close(train_safetensors *reader) {
  if (reader->file >= 0) close(reader->file);
  json_decref(reader->header);
  free(reader->tensors);
  *reader = (train_safetensors){.file = -1};
}

const train_safetensor *train_safetensors_find(const train_safetensors *reader, const char *name) {
  for (int64_t i = 0; i < reader->count; ++i)
    if (strcmp(reader->tensors[i].name, name) == 0) return &reader->tensors[i];
  return NULL;
}

const char *train_safetensors_metadata(const train_safetensors *reader, const char *key) {
  return json_string_value(json_object_get(json_object_get(reader->header, "__metadata__"), key));
}

const train_safetensor *train_safetensors_expect(const train_safetensors *reader, const char *name, const char *dtype,
                                                 int ndim, const int64_t *shape, train_error *error) {
  const train_safetensor *tensor = train_safetensors_find(reader, name);
  if (!tensor) {
    refuse(reader, name, "is missing", error);
    return NULL;
  }
  bool same = strcmp(tensor->dtype, dtype) == 0 && tensor->ndim == ndim;
  for (int d = 0; same && d < ndim; ++d) same = tensor->shape[d] == shape[d];
  if (same) return tensor;
  char wanted[64];
  snprintf(wanted, sizeof wanted, ndim == 2 ? "[%" PRId64 ", %" PRId64 "]" : "[%" PRId64 "]", shape[0],
           ndim == 2 ? shape[1] : 0);
  train_fail(error, TRAIN_EXIT_TROUBLE,
             "%s is no usable checkpoint: tensor \"%.100s\" is %s with %d dimensions and %" PRId64
             " bytes, must be %s %s",
             reader->path, name, tensor->dtype, tensor->ndim, tensor->bytes, dtype, wanted);
  return NULL;
}

bool train_safetensors_read(const train_safetensors *reader, const train_safetensor *tensor, int64_t first,
                            int64_t count, void *to, train_error *error) {
  return read_at(reader, reader->data + tensor->offset + first, (size_t)count, to, error);
}
