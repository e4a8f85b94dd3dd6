#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source.h"

/* llm.c's header: 256 int32, of which the first three are magic, version and the number of tokens. */
enum { HEADER_BYTES = 1024, MAGIC_UINT16 = 20240520, MAGIC_UINT32 = 20240801 };

static uint32_t little_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Sets offset, count and width from the header, if there is one, and the size. */
static bool measure(train_segment *segment, int64_t bytes, int width, train_error *error) {
  uint8_t head[12] = {0};
  const ssize_t got = pread(segment->file, head, sizeof head, 0);
  if (got < 0) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot read %s: %s", segment->name, strerror(errno));
  const uint32_t magic = little_endian(head);
  segment->width = width;
  if (got == (ssize_t)sizeof head && bytes >= HEADER_BYTES && (magic == MAGIC_UINT16 || magic == MAGIC_UINT32)) {
    segment->width = magic == MAGIC_UINT16 ? 2 : 4;
    segment->offset = HEADER_BYTES;
    segment->count = little_endian(head + 8);
    const int64_t there = (bytes - HEADER_BYTES) / segment->width;
    if (segment->count > there)
      return train_fail(error, TRAIN_EXIT_TROUBLE,
                        "%s is truncated: its header says %" PRId64 " tokens of %d bytes, %" PRId64 " are there",
                        segment->name, segment->count, segment->width, there);
    return true;
  }
  if (bytes % width != 0)
    return train_fail(error, TRAIN_EXIT_TROUBLE,
                      "%s has %" PRId64
                      " bytes, must be a multiple of %d (--token-bits %d): truncated, or no token file",
                      segment->name, bytes, width, 8 * width);
  segment->count = bytes / width;
  return true;
}

static bool open_segment(train_segment *segment, const char *path, int width, train_error *error) {
  struct stat status;
  segment->file = -1;
  segment->name = strdup(path);
  if (!segment->name) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the name of %s", path);
  segment->file = open(path, O_RDONLY | O_CLOEXEC);
  if (segment->file < 0 || fstat(segment->file, &status) != 0)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode)) return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is not a file", path);
  if (status.st_size == 0) return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is empty", path);
  return measure(segment, (int64_t)status.st_size, width, error);
}

bool train_source_is_bin(const char *path) {
  const size_t length = strlen(path);
  return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

bool train_source_open_bin(const char *const *paths, int64_t count, int width, train_source *source,
                           train_error *error) {
  *source = (train_source){.segments = calloc((size_t)(count ? count : 1), sizeof *source->segments)};
  if (!source->segments) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of files");
  bool good = true;
  for (int64_t i = 0; good && i < count; ++i) {
    source->segment_count = i + 1;
    good = open_segment(&source->segments[i], paths[i], width, error);
    source->count += source->segments[i].count;
  }
  if (!good) train_source_close(NULL, source);
  return good;
}
