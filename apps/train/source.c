#include "source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void train_source_close(train_memory *memory, train_source *source) {
  for (int64_t i = 0; i < source->segment_count; ++i) {
    if (source->segments[i].file >= 0) close(source->segments[i].file);
    free(source->segments[i].name);
  }
  free(source->segments);
  if (source->text.data) train_host_free(memory, &source->text);
  *source = (train_source){0};
}

static int32_t token_at(const uint8_t *bytes, int width) {
  uint32_t token = bytes[0];
  for (int i = 1; i < width; ++i) token |= (uint32_t)bytes[i] << (8 * i);
  return token > INT32_MAX ? INT32_MAX : (int32_t)token;
}

/* pread() that goes on after a short read. */
static bool read_all(const train_segment *segment, int64_t offset, size_t bytes, uint8_t *to, train_error *error) {
  while (bytes > 0) {
    const ssize_t got = pread(segment->file, to, bytes, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot read %s: %s", segment->name, strerror(errno));
    if (got == 0)
      return train_fail(error, TRAIN_EXIT_TROUBLE, "%s became shorter while it was read: it ends at byte %" PRId64,
                        segment->name, offset);
    to += got;
    offset += got;
    bytes -= (size_t)got;
  }
  return true;
}

static bool read_segment(const train_segment *segment, int64_t first, int64_t count, int32_t *tokens,
                         train_error *error) {
  enum { PIECE = 4096 };
  uint8_t piece[PIECE * 4];
  const int width = segment->width;
  for (int64_t done = 0; done < count; done += PIECE) {
    const int64_t part = count - done < PIECE ? count - done : PIECE;
    const int64_t offset = segment->offset + (first + done) * width;
    const uint8_t *bytes = piece;
    if (segment->bytes)
      bytes = segment->bytes + offset;
    else if (!read_all(segment, offset, (size_t)(part * width), piece, error))
      return false;
    for (int64_t i = 0; i < part; ++i) tokens[done + i] = token_at(bytes + i * width, width);
  }
  return true;
}

bool train_source_read(const train_source *source, int64_t first, int64_t count, int32_t *tokens, train_error *error) {
  for (int64_t s = 0; s < source->segment_count && count > 0; ++s) {
    const train_segment *segment = &source->segments[s];
    if (first >= segment->count) {
      first -= segment->count;
      continue;
    }
    const int64_t part = segment->count - first < count ? segment->count - first : count;
    if (!read_segment(segment, first, part, tokens, error)) return false;
    tokens += part;
    count -= part;
    first = 0;
  }
  return true;
}

bool train_source_largest(const train_source *source, int32_t *largest, train_error *error) {
  enum { PIECE = 65536 };
  int32_t *tokens = malloc(PIECE * sizeof *tokens);
  if (!tokens) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for reading the data");
  bool good = true;
  *largest = 0;
  for (int64_t first = 0; good && first < source->count; first += PIECE) {
    const int64_t count = source->count - first < PIECE ? source->count - first : PIECE;
    good = train_source_read(source, first, count, tokens, error);
    for (int64_t i = 0; good && i < count; ++i) *largest = tokens[i] > *largest ? tokens[i] : *largest;
  }
  free(tokens);
  return good;
}

bool train_source_digest(const train_source *source, uint64_t *digest, train_error *error) {
  enum { ENDS = 65536 };
  const int64_t count = source->count < ENDS ? source->count : ENDS;
  int32_t *tokens = malloc((size_t)(count + 1) * sizeof *tokens);
  if (!tokens) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for reading the data");
  uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)source->count; /* FNV-1a over whole tokens */
  bool good = true;
  for (int end = 0; good && end < 2; ++end) {
    good = train_source_read(source, end ? source->count - count : 0, count, tokens, error);
    for (int64_t i = 0; good && i < count; ++i) hash = (hash ^ (uint32_t)tokens[i]) * UINT64_C(0x100000001b3);
  }
  free(tokens);
  *digest = hash;
  return good;
}
