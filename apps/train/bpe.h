/* Byte pair encoding of one piece of text: the pair of neighbours with the lowest rank becomes one token, again and again. */
#ifndef TRAIN_BPE_H
#define TRAIN_BPE_H

#include "tokenizer.h"

typedef struct train_bpe_merge {
  uint64_t pair; /* left << 32 | right; UINT64_MAX: an empty place */
  int32_t rank, result;
} train_bpe_merge;

typedef struct train_bpe_symbol {
  int32_t token;         /* -1: merged into the one before */
  int32_t before, after; /* -1: none */
} train_bpe_symbol;

typedef struct train_bpe_candidate {
  int32_t rank, place;
  uint64_t pair;
} train_bpe_candidate;

typedef struct train_bpe {
  int32_t byte_tokens[256]; /* -1: none */
  int32_t unknown;          /* in place of a byte without a token; -1: none */
  train_bpe_merge *merges;  /* a hash table, [places] */
  uint64_t places;          /* a power of two */
  train_bpe_symbol *symbols;
  train_bpe_candidate *heap;
  int64_t symbol_capacity, heap_count;
} train_bpe;

/* An empty table for `count` merges. */
bool train_bpe_create(train_bpe *bpe, int64_t count, train_error *error);
void train_bpe_destroy(train_bpe *bpe);

/* A pair that is there already gets the new rank. */
void train_bpe_merge_add(train_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t result);

bool train_bpe_encode(train_bpe *bpe, const uint8_t *piece, size_t bytes, train_tokens *tokens, train_error *error);

#endif
