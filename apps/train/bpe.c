#include "bpe.h"

#include <stdlib.h>

#include "random.h"

static uint64_t pair_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

bool train_bpe_create(train_bpe *bpe, int64_t count, train_error *error) {
  uint64_t places = 16;
  while (places < 2 * (uint64_t)count) places *= 2;
  *bpe = (train_bpe){.unknown = -1, .places = places};
  for (int i = 0; i < 256; ++i) bpe->byte_tokens[i] = -1;
  bpe->merges = malloc(places * sizeof *bpe->merges);
  if (!bpe->merges) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the merges of the tokenizer");
  for (uint64_t i = 0; i < places; ++i) bpe->merges[i].pair = UINT64_MAX;
  return true;
}

void train_bpe_destroy(train_bpe *bpe) {
  free(bpe->merges);
  free(bpe->symbols);
  free(bpe->heap);
  *bpe = (train_bpe){0};
}

/* The place of a pair, or the empty one where it belongs. */
static train_bpe_merge *place_of(const train_bpe *bpe, uint64_t pair) {
  uint64_t at = train_mix(pair) & (bpe->places - 1);
  while (bpe->merges[at].pair != UINT64_MAX && bpe->merges[at].pair != pair) at = (at + 1) & (bpe->places - 1);
  return &bpe->merges[at];
}

void train_bpe_merge_add(train_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t result) {
  const uint64_t pair = pair_of(left, right);
  *place_of(bpe, pair) = (train_bpe_merge){pair, rank, result};
}

/* ---- the heap: lowest rank first, of equal ones the leftmost ---- */

static bool less(const train_bpe_candidate *a, const train_bpe_candidate *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void push(train_bpe *bpe, train_bpe_candidate candidate) {
  int64_t at = bpe->heap_count++;
  while (at > 0 && less(&candidate, &bpe->heap[(at - 1) / 2])) {
    bpe->heap[at] = bpe->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  bpe->heap[at] = candidate;
}

static train_bpe_candidate pop(train_bpe *bpe) {
  const train_bpe_candidate first = bpe->heap[0], last = bpe->heap[--bpe->heap_count];
  int64_t at = 0;
  for (int64_t child = 1; child < bpe->heap_count; child = 2 * at + 1) {
    if (child + 1 < bpe->heap_count && less(&bpe->heap[child + 1], &bpe->heap[child])) ++child;
    if (!less(&bpe->heap[child], &last)) break;
    bpe->heap[at] = bpe->heap[child];
    at = child;
  }
  bpe->heap[at] = last;
  return first;
}

/* ---- a piece ---- */

/* A piece of n bytes has at most n - 1 pairs, and each merge makes two new ones. */
static bool make_room(train_bpe *bpe, size_t bytes, train_error *error) {
  if ((int64_t)bytes <= bpe->symbol_capacity) return true;
  const size_t capacity = 2 * bytes + 64;
  train_bpe_symbol *symbols = bytes < INT32_MAX / 4 ? realloc(bpe->symbols, capacity * sizeof *symbols) : NULL;
  if (symbols) bpe->symbols = symbols;
  train_bpe_candidate *heap = symbols ? realloc(bpe->heap, 3 * capacity * sizeof *heap) : NULL;
  if (!heap) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for tokenizing a piece of %zu bytes", bytes);
  bpe->heap = heap;
  bpe->symbol_capacity = (int64_t)capacity;
  return true;
}

static void propose(train_bpe *bpe, int32_t place) {
  const train_bpe_symbol *s = &bpe->symbols[place];
  if (s->after < 0) return;
  const uint64_t pair = pair_of(s->token, bpe->symbols[s->after].token);
  const train_bpe_merge *merge = place_of(bpe, pair);
  if (merge->pair == pair) push(bpe, (train_bpe_candidate){merge->rank, place, pair});
}

static bool split(train_bpe *bpe, const uint8_t *piece, size_t bytes, train_error *error) {
  for (size_t i = 0; i < bytes; ++i) {
    int32_t token = bpe->byte_tokens[piece[i]];
    if (token < 0) token = bpe->unknown;
    if (token < 0)
      return train_fail(error, TRAIN_EXIT_TROUBLE,
                        "the tokenizer has no token for the byte 0x%02x, and none for what is unknown", piece[i]);
    bpe->symbols[i] = (train_bpe_symbol){token, (int32_t)i - 1, i + 1 < bytes ? (int32_t)(i + 1) : -1};
  }
  return true;
}

bool train_bpe_encode(train_bpe *bpe, const uint8_t *piece, size_t bytes, train_tokens *tokens, train_error *error) {
  if (bytes == 0) return true;
  if (!make_room(bpe, bytes, error) || !split(bpe, piece, bytes, error)) return false;
  train_bpe_symbol *symbols = bpe->symbols;
  bpe->heap_count = 0;
  for (size_t i = 0; i + 1 < bytes; ++i) propose(bpe, (int32_t)i);
  while (bpe->heap_count > 0) {
    const train_bpe_candidate c = pop(bpe);
    train_bpe_symbol *left = &symbols[c.place];
    if (left->token < 0 || left->after < 0 || pair_of(left->token, symbols[left->after].token) != c.pair) continue;
    train_bpe_symbol *right = &symbols[left->after];
    left->token = place_of(bpe, c.pair)->result;
    left->after = right->after;
    right->token = -1;
    if (left->after >= 0) symbols[left->after].before = c.place;
    if (left->before >= 0) propose(bpe, left->before);
    propose(bpe, c.place);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].after)
    if (!train_tokens_add(tokens, symbols[i].token, error)) return false;
  return true;
}
