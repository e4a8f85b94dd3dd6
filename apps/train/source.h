/* Where tokens come from: text in memory, one token a byte, or token files (.bin) on disk, read as they are needed. */
#ifndef TRAIN_SOURCE_H
#define TRAIN_SOURCE_H

#include "memory.h"
#include "tokenizer.h"

typedef struct train_segment {
  const uint8_t *bytes; /* in memory; NULL: in `file` */
  int file;             /* descriptor, owned */
  char *name;           /* path, owned */
  int64_t offset;       /* bytes before the first token */
  int64_t count;        /* tokens */
  int width;            /* bytes of a token: 1, 2 or 4, little endian */
} train_segment;

/* The segments' tokens one after another. */
typedef struct train_source {
  train_segment *segments;
  int64_t segment_count;
  int64_t count; /* tokens */
  train_block text;
  bool is_text;   /* bytes, vocabulary 256 */
  char note[256]; /* what the user should know about the data; "" for nothing */
} train_source;

/* `memory` may be NULL for a source without text. */
void train_source_close(train_memory *memory, train_source *source);

/* Tokens [first, first + count) into `tokens`. Fails when a file was cut short meanwhile. */
bool train_source_read(const train_source *source, int64_t first, int64_t count, int32_t *tokens, train_error *error);

/* The largest token. */
bool train_source_largest(const train_source *source, int32_t *largest, train_error *error);

/* A 64-bit digest of the length and of the first and last 64 Ki tokens, to notice that the data changed. */
bool train_source_digest(const train_source *source, uint64_t *digest, train_error *error);

/* One UTF-8 file, or all files of a folder and the folders in it, in the order of their paths. A newline follows a file that
 * does not end in one. In a folder hidden files and files without UTF-8 text are left out. The note counts them. */
bool train_source_open_text(train_memory *memory, const char *path, train_source *source, train_error *error);

/* The King James Bible of the Debian package bible-kjv, its verse numbers stripped. */
bool train_source_open_bible(train_memory *memory, train_source *source, train_error *error);

/* Makes a text source one of the tokenizer's tokens, held in memory. On failure it is the text still. */
bool train_source_encode(train_memory *memory, train_source *source, train_tokenizer *tokenizer, train_error *error);

/* Whether a path names a token file. */
bool train_source_is_bin(const char *path);

/* Token files: llm.c's with their header of 256 int32, else bare tokens of `width` bytes as nanoGPT writes them. */
bool train_source_open_bin(const char *const *paths, int64_t count, int width, train_source *source,
                           train_error *error);

#endif
