#include <stdlib.h>
#include <string.h>

#include "json_memory.h"
#include "safetensors.h"

enum { PIECE = 1 << 20 /* bytes that are written at once */ };

/* The header's JSON, padded with blanks so that the data begins at a multiple of 8; NULL when memory ran out, for it or for the
 * metadata. */
static char *header_text(train_safetensor *tensors, int64_t count, json_t *metadata, size_t *length) {
  json_t *header = json_object();
  bool good = json_object_set(header, "__metadata__", metadata) == 0;
  int64_t offset = 0;
  for (int64_t i = 0; good && i < count; ++i) {
    train_safetensor *t = &tensors[i];
    json_t *shape = json_array();
    t->bytes = train_safetensors_element(t->dtype);
    for (int d = 0; d < t->ndim; ++d) {
      t->bytes *= t->shape[d];
      json_array_append_new(shape, json_integer(t->shape[d]));
    }
    t->offset = offset;
    offset += t->bytes;
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape, "data_offsets",
                              (json_int_t)t->offset, (json_int_t)offset);
    good = json_object_set_new(header, t->name, entry) == 0;
  }
  char *text = good ? train_json_text(header, JSON_COMPACT) : NULL;
  json_decref(header);
  if (!text) return NULL;
  const size_t used = strlen(text), padded = (used + 7) / 8 * 8;
  char *wide = realloc(text, padded + 1);
  if (!wide) {
    free(text);
    return NULL;
  }
  memset(wide + used, ' ', padded - used);
  *length = padded;
  return wide;
}

static bool append_tensors(train_file *file, const train_safetensor *tensors, int64_t count,
                           train_safetensors_fill fill, void *user, train_error *error) {
  char *piece = malloc(PIECE);
  bool good = piece || train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for writing %s", file->path);
  bool discard = !good; /* a failed append has already discarded the file */
  for (int64_t i = 0; good && i < count; ++i) {
    for (int64_t first = 0; good && first < tensors[i].bytes; first += PIECE) {
      const int64_t part = tensors[i].bytes - first < PIECE ? tensors[i].bytes - first : PIECE;
      good = fill(user, i, first, part, piece, error);
      discard = !good;
      good = good && train_file_append(file, piece, (size_t)part, error);
    }
  }
  free(piece);
  if (discard) train_file_discard(file);
  return good;
}

bool train_safetensors_write(const char *path, train_safetensor *tensors, int64_t count, json_t *metadata,
                             train_safetensors_fill fill, void *user, train_error *error) {
  train_file file;
  size_t length = 0;
  char *text = header_text(tensors, count, metadata, &length);
  if (!text) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the header of %s", path);
  uint8_t head[8];
  for (int i = 0; i < 8; ++i) head[i] = (uint8_t)((uint64_t)length >> (8 * i));
  const bool good = train_file_create(path, &file, error) && train_file_append(&file, head, sizeof head, error) &&
                    train_file_append(&file, text, length, error) &&
                    append_tensors(&file, tensors, count, fill, user, error) && train_file_finish(&file, error);
  free(text);
  return good;
}
