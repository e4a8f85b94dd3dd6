/* Text that comes in pieces: held back while it may be the beginning of a stop text or is a part of a character. */
#ifndef TRAIN_STREAM_H
#define TRAIN_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct train_stream {
  const char *const *stops; /* not empty ones */
  int stop_count;
  void (*show)(void *user, const uint8_t *bytes, size_t count);
  void *user;
  uint8_t *held;
  size_t count, capacity;
  bool stopped; /* a stop text came; it and what follows are not shown */
} train_stream;

/* False when memory ran out. */
bool train_stream_add(train_stream *stream, const uint8_t *bytes, size_t count, train_error *error);
/* Shows what is held and releases it. */
void train_stream_end(train_stream *stream);

#endif
