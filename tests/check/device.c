/* A run's buffers in the memory of a device that the host cannot reach. Everything that the run made, with guard zones, is
 * copied there before its call and back after it. In the copied arguments whatever points into a buffer points to its copy:
 * every word that is such an address is taken for one. */
#include <stdlib.h>
#include <string.h>

#include "check/internal.h"
#include "core/context.h"

enum { LINE = 512 }; /* bytes */

static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static bool goes(const check_buffer *b) { return b->role != CHECK_ROLE_SCRATCH && b->inner_bytes > 0; }

/* What a context records has no memory at all. */
bool check_is_away(const check *k) { return !k->context->queue.backend->host_memory || k->context->queue.record; }

static char *place_of(const check_away *away, const check *k, uintptr_t address) {
  for (int i = 0; i < k->count; ++i) {
    const check_buffer *b = &k->buffers[i];
    const uintptr_t inner = (uintptr_t)b->inner;
    if (away->place[i] && address >= inner && address <= inner + b->inner_bytes)
      return away->place[i] + (address - inner);
  }
  return NULL;
}

static void redirect(const check_away *away, const check *k, void *words, size_t bytes) {
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word;
    memcpy(&word, (char *)words + at, sizeof word);
    char *place = word ? place_of(away, k, word) : NULL;
    if (place) memcpy((char *)words + at, &place, sizeof place);
  }
}

static void expect(check *k, tigon_status status) {
  if (status != TIGON_OK) check_fail(k, "%s", tigon_last_error(k->context));
}

static void give_back(const check *k, check_away *away) {
  for (int i = 0; i < k->count; ++i)
    if (!goes(&k->buffers[i])) free(away->place[i]);
  tigon_free(k->context, away->block);
  free(away->place);
  free(away->args);
}

/* Lists that arguments point at stay on the host, as copies. */
const void *check_send(check *k, const void *args, size_t bytes, check_away *away) {
  size_t total = 0;
  void *device = NULL;
  *away = (check_away){.args = malloc(bytes), .place = calloc((size_t)k->count + 1, sizeof *away->place)};
  check_need(away->args), check_need(away->place);
  for (int i = 0; i < k->count; ++i) total += goes(&k->buffers[i]) ? lines(k->buffers[i].inner_bytes) : 0;
  const tigon_status status = tigon_alloc(k->context, total, &device);
  expect(k, status);
  away->block = device;
  if (status != TIGON_OK) {
    give_back(k, away);
    return NULL;
  }
  size_t used = 0;
  for (int i = 0; i < k->count; ++i) {
    const check_buffer *b = &k->buffers[i];
    if (b->numbers) continue;
    if (!goes(b)) {
      away->place[i] = check_need(malloc(b->inner_bytes + 1));
      memcpy(away->place[i], b->inner, b->inner_bytes);
      continue;
    }
    away->place[i] = away->block + used;
    used += lines(b->inner_bytes);
    expect(k, tigon_copy(k->context, away->place[i], b->inner, b->inner_bytes));
  }
  for (int i = 0; i < k->count; ++i)
    if (away->place[i] && !goes(&k->buffers[i])) redirect(away, k, away->place[i], k->buffers[i].inner_bytes);
  memcpy(away->args, args, bytes);
  redirect(away, k, away->args, bytes);
  return away->args;
}

void check_fetch(check *k, check_away *away) {
  expect(k, tigon_context_sync(k->context));
  for (int i = 0; i < k->count; ++i) {
    const check_buffer *b = &k->buffers[i];
    if (goes(b)) expect(k, tigon_copy(k->context, b->inner, away->place[i], b->inner_bytes));
  }
  give_back(k, away);
}
