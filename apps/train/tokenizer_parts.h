/* What a tokenizer is made of: tokenizer_json.c fills it, tokenizer.c uses it. */
#ifndef TRAIN_TOKENIZER_PARTS_H
#define TRAIN_TOKENIZER_PARTS_H

#include <jansson.h>

#include "bpe.h"
#include "file.h"
#include "split.h"

enum { TRAIN_NORMALIZERS = 8, TRAIN_TEMPLATE = 16, TRAIN_LARGEST_VOCAB = 1 << 24 };

/* A text that is a token of its own wherever it is found. */
typedef struct train_added {
  const char *text; /* borrowed from the JSON */
  size_t bytes;
  int32_t token;
  bool eats_before, eats_behind; /* takes the white space there too */
  bool normalized;               /* looked for in the normalized text */
} train_added;

/* A token's bytes. */
typedef struct train_spelling {
  int64_t first; /* in `bytes` of the tokenizer */
  int32_t count; /* 0: not shown */
} train_spelling;

struct train_tokenizer {
  bool is_bytes;   /* a token is a byte: none of what follows but vocab, spellings and bytes */
  bool byte_level; /* a step of the pre-tokenizer says so */
  char path[TRAIN_PATH];
  void *file, *config; /* tokenizer.json and, NULL for none, tokenizer_config.json as they were read */
  size_t file_bytes, config_bytes;
  json_t *json;
  int64_t vocab;
  train_spelling *spellings; /* [vocab] */
  uint8_t *bytes;
  train_added *added; /* by first byte, then the longest first */
  int64_t added_count;
  int64_t added_from[257]; /* those that begin with byte b: [added_from[b], added_from[b + 1]) */
  int normalizers[TRAIN_NORMALIZERS], normalizer_count; /* utf8proc's options */
  train_split *split;
  train_bpe bpe;
  json_t *whole;                 /* ignore_merges: the vocabulary, in which whole pieces are looked up; NULL: not */
  int32_t begin[TRAIN_TEMPLATE]; /* before a text */
  int begin_count;
};

/* Fills all but path and is_bytes from `file`. On failure the tokenizer is to be closed. */
bool train_tokenizer_read(train_tokenizer *tokenizer, train_error *error);

/* The character that stands for a byte in a vocabulary of byte-level tokens: 1 or 2 bytes of UTF-8 are written. */
int train_byte_letter(uint8_t byte, char to[2]);

#endif
