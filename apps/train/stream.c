#include "stream.h"

#include <stdlib.h>
#include <string.h>

/* Shows the first `count` bytes. */
static void show(train_stream *s, size_t count) {
  if (count == 0) return;
  s->show(s->user, s->held, count);
  s->count -= count;
  memmove(s->held, s->held + count, s->count);
}

/* Where the first stop text begins, or where one may that is not whole yet; count when none does. Sets *whole. */
static size_t find_stop(const train_stream *s, bool *whole) {
  for (size_t at = 0; at < s->count; ++at) {
    for (int i = 0; i < s->stop_count; ++i) {
      const size_t length = strlen(s->stops[i]), rest = s->count - at;
      if (memcmp(s->held + at, s->stops[i], length < rest ? length : rest) != 0) continue;
      *whole = length <= rest;
      return at;
    }
  }
  return s->count;
}

/* Bytes of whole characters among the first `count`: a character that may go on is left out. */
static size_t whole_characters(const uint8_t *bytes, size_t count) {
  for (size_t back = 1; back <= 3 && back <= count; ++back) {
    const uint8_t byte = bytes[count - back];
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? count - back : count;
  }
  return count;
}

bool train_stream_add(train_stream *s, const uint8_t *bytes, size_t count, train_error *error) {
  if (s->stopped || count == 0) return true;
  if (s->count + count > s->capacity) {
    const size_t capacity = 2 * (s->count + count) + 256;
    uint8_t *held = realloc(s->held, capacity);
    if (!held) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the text");
    s->held = held;
    s->capacity = capacity;
  }
  memcpy(s->held + s->count, bytes, count);
  s->count += count;
  bool whole = false;
  const size_t free_of_stops = find_stop(s, &whole);
  if (!whole) {
    show(s, whole_characters(s->held, free_of_stops));
    return true;
  }
  show(s, free_of_stops);
  s->count = 0;
  s->stopped = true;
  return true;
}

void train_stream_end(train_stream *s) {
  show(s, s->count);
  free(s->held);
  s->held = NULL;
  s->capacity = 0;
}
