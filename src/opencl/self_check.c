#include "opencl/self_check.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/half.h"
#include "opencl/program.h"
#include "opencl/trial.h"

enum { CASES = 3, TRIES = 20000, SENTENCE = 320, NO_MEMORY = -1 }; /* CASES: of narrow calls, and of wide ones */

/* ---- one call ---- */

/* Wrong code is off by about what a tensor has; rounding is not. An entry rounds a value to its dtype at most some 16 times, each of at most four times the
 * result: 64 half units in the last place. f32 allows more, for sums that cancel; 8 bits half a step more than bf16. */
static double tolerance(tigon_dtype of_call, tigon_dtype dtype) {
  if (dtype == TIGON_F8E4M3 || dtype == TIGON_I8 || dtype == TIGON_BF16 || of_call == TIGON_BF16) return 0x1p-3;
  return dtype == TIGON_F16 || of_call == TIGON_F16 ? 0x1p-5 : 0x1p-10;
}

static int64_t count_of(const tigon_tensor *x) {
  int64_t count = x->data != NULL;
  for (int d = 0; d < x->ndim; ++d) count *= x->shape[d];
  return count;
}

static double element(const tigon_tensor *x, const void *data, int64_t i) {
  const bool index = x->dtype == TIGON_I32 || x->dtype == TIGON_I64;
  return index ? (double)tigon_load_index(data, i, x->dtype) : tigon_load_f64(data, i, x->dtype);
}

/* An output of the device beside the oracle's. True: an element is wrong, which *sentence says. */
static bool is_wrong(const trial *t, const tigon_field *field, const tigon_tensor *must, const void *is,
                     char *sentence) {
  const bool exact = must->dtype == TIGON_I32 || must->dtype == TIGON_I64;
  double largest = 0x1p-3; /* what is smaller may be left over where larger numbers cancelled */
  for (int64_t i = 0; i < count_of(must); ++i) {
    const double value = fabs(element(must, must->data, i));
    if (isfinite(value)) largest = fmax(largest, value);
  }
  const double bound = exact ? 0 : 2 * tolerance(t->dtype, must->dtype) * largest;
  for (int64_t i = 0; i < count_of(must); ++i) {
    const double a = element(must, is, i), b = element(must, must->data, i);
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= bound) continue;
    snprintf(sentence, SENTENCE, "%s[%lld] is %.7g, must be %.7g", field->name, (long long)i, a, b);
    return true;
  }
  return false;
}

/* What the device made of the memory beside what the oracle did; both in host memory. */
static bool differs(trial *must, char *is, char *sentence) {
  const tigon_field *field;
  const tigon_tensor *x;
  for (int k = 0; (x = trial_tensor(must, k, &field)); ++k) {
    if (!x->data || !(field->flags & TIGON_FIELD_OUT)) continue;
    char *own = is + ((char *)x->data - must->memory);
    if (is_wrong(must, field, x, own, sentence)) return true;
    memcpy(own, x->data, (size_t)count_of(x) * tigon_dtype_size(x->dtype));
  }
  if (memcmp(is, must->memory, must->used) == 0) return false;
  snprintf(sentence, SENTENCE, "memory beside the outputs is written");
  return true;
}

/* With a workspace of the context's, which it gives back. */
static tigon_status run(trial *t, tigon_context *context) {
  size_t bytes = 0;
  void *workspace = NULL;
  trial_set_workspace(t, NULL, 0);
  TIGON_TRY(tigon_schema_workspace(t->entry, context, t->args, &bytes, NULL));
  TIGON_TRY(tigon_alloc(context, bytes, &workspace));
  trial_set_workspace(t, workspace, bytes);
  const tigon_status status = tigon_schema_call(t->entry, context, t->args);
  tigon_free(context, workspace); /* which waits */
  return status;
}

/* ---- an entry ---- */

typedef struct bench {
  tigon_context *device, *oracle;
  void *memory; /* the device's */
  trial here;
  char there[TRIAL_BYTES];
} bench;

/* OK: the call is legal, and right; or *sentence says what is wrong. */
static tigon_status try_one(bench *b, char *sentence) {
  trial *t = &b->here;
  memcpy(b->there, t->memory, t->used);
  TIGON_TRY(run(t, b->oracle));
  TIGON_TRY(tigon_copy(b->device, b->memory, b->there, t->used));
  const uintptr_t by = (uintptr_t)b->memory - (uintptr_t)t->memory;
  trial_move(t, by);
  tigon_status status = run(t, b->device);
  trial_move(t, 0 - by);
  if (status == TIGON_OK) status = tigon_copy(b->device, b->there, b->memory, t->used);
  if (status == TIGON_OK) differs(t, b->there, sentence);
  return status;
}

/* How many calls were made, NO_MEMORY: it ran out; seeds are tried until a front takes what they say. */
static int try_all(bench *b, int entry, tigon_dtype dtype, char *sentence) {
  int done[2] = {0, 0};
  tigon_status status = TIGON_OK;
  for (uint32_t seed = 0; seed < TRIES && done[0] + done[1] < 2 * CASES; ++seed) {
    if (!trial_make(&b->here, entry, dtype, seed) || done[b->here.is_wide] == CASES) continue;
    status = try_one(b, sentence);
    done[b->here.is_wide] += status == TIGON_OK;
    if (status == TIGON_ERROR_OUT_OF_MEMORY) return NO_MEMORY;
    if (*sentence || status == TIGON_ERROR_DEVICE) break;
  }
  return done[0] + done[1];
}

static tigon_status open_over(const tigon_queue *queue, tigon_context **made) {
  const opencl_device *d = opencl_of(queue);
  char name[32];
  snprintf(name, sizeof name, "%s:%d", queue->backend->name, d->index);
  const tigon_context_desc desc = {.device = name, .stream = d->stream, .variant = queue->variant};
  TIGON_TRY(tigon_context_create(&desc, made));
  opencl_device *const own = opencl_of(&(*made)->queue);
  own->is_checking = true;
  own->sgemm = d->sgemm;
  return TIGON_OK;
}

/* How many calls there were, or NO_MEMORY; *sentence is empty, or what is wrong with one of them. */
static int check_entry(const tigon_queue *queue, int entry, tigon_dtype dtype, char *sentence) {
  bench *b = calloc(1, sizeof *b);
  sentence[0] = 0;
  if (!b) return NO_MEMORY;
  tigon_status status = open_over(queue, &b->device);
  if (status == TIGON_OK) status = tigon_context_create(&(tigon_context_desc){.device = "ref"}, &b->oracle);
  if (status == TIGON_OK) status = tigon_alloc(b->device, TRIAL_BYTES, &b->memory);
  int done = status == TIGON_ERROR_OUT_OF_MEMORY ? NO_MEMORY : 0;
  if (status == TIGON_OK) done = try_all(b, entry, dtype, sentence);
  if (b->device) tigon_free(b->device, b->memory);
  tigon_context_destroy(b->device);
  tigon_context_destroy(b->oracle);
  free(b);
  return done;
}

/* ---- what is known ---- */

/* The process's verdicts. A sentence lives as long as the process: NULL is right. */
typedef struct verdict {
  struct verdict *next;
  uint64_t key;
  char *sentence;
} verdict;
static verdict *verdicts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const verdict *find(uint64_t key) {
  pthread_mutex_lock(&lock);
  const verdict *v = verdicts;
  while (v && v->key != key) v = v->next;
  pthread_mutex_unlock(&lock);
  return v;
}

static const verdict *remember(uint64_t key, const char *sentence) {
  verdict *made = malloc(sizeof *made);
  char *own = *sentence ? strdup(sentence) : NULL;
  if (!made || (*sentence && !own)) {
    free(made), free(own);
    return NULL;
  }
  pthread_mutex_lock(&lock);
  *made = (verdict){verdicts, key, own};
  verdicts = made;
  pthread_mutex_unlock(&lock);
  return made;
}

static const char no_memory[] = "no memory for the self-check of the device";

static bool asks_clblast(const opencl_device *d, int entry, tigon_dtype dtype) {
  const bool multiplies = entry == OPENCL_ENTRY_linear_fwd || entry == OPENCL_ENTRY_linear_bwd;
  return d->sgemm && dtype == TIGON_F32 && multiplies;
}

/* A verdict whose sentence is no_memory where that is so. NULL: nothing is known, nor was found out. */
static const verdict *judge_as_is(tigon_queue *queue, int entry, tigon_dtype dtype, bool may_run) {
  static const verdict unknown = {.sentence = (char *)no_memory};
  const tigon_schema *schema = tigon_schema_at(entry);
  const opencl_device *d = opencl_of(queue);
  char name[96], sentence[SENTENCE], whole[2 * SENTENCE] = "!"; /* which is not empty, as a file may not be */
  snprintf(name, sizeof name, "self-check-%s-%s%s", schema->name, tigon_dtype_name(dtype),
           asks_clblast(d, entry, dtype) ? "-clblast" : "");
  const uint64_t key = opencl_hash(opencl_key(d, dtype, opencl_sources_hash()), name);
  const verdict *known = find(key);
  size_t bytes;
  unsigned char *kept = known ? NULL : opencl_cache_read(name, key, &bytes);
  if (kept) {
    snprintf(whole, sizeof whole, "%.*s", (int)bytes, (const char *)kept);
    free(kept);
    const verdict *read = remember(key, whole + 1);
    return read ? read : &unknown;
  }
  if (known || !may_run) return known;
  const int calls = check_entry(queue, entry, dtype, sentence);
  if (calls <= 0) return calls == NO_MEMORY ? &unknown : NULL;
  if (*sentence)
    snprintf(
        whole, sizeof whole,
        "!the driver of %s computes %s wrongly in %s: %s in a self-check; TIGON_OPENCL_TRUST=1 uses it all the same",
        d->desc.name, schema->name, tigon_dtype_name(dtype), sentence);
  opencl_cache_write(name, key, (const unsigned char *)whole, strlen(whole));
  const verdict *made = remember(key, whole + 1);
  return made ? made : &unknown;
}

/* What is wrong with CLBlast is made without it. */
static const verdict *judge(tigon_queue *queue, int entry, tigon_dtype dtype, bool may_run) {
  opencl_device *d = opencl_of(queue);
  const verdict *v = judge_as_is(queue, entry, dtype, may_run);
  if (!v || !v->sentence || v->sentence == no_memory || !asks_clblast(d, entry, dtype)) return v;
  d->sgemm = NULL;
  return judge_as_is(queue, entry, dtype, may_run);
}

static bool trusts_all(void) {
  const char *trust = getenv("TIGON_OPENCL_TRUST");
  return trust && *trust && strcmp(trust, "0") != 0;
}

tigon_status opencl_trust(tigon_queue *queue, int entry, tigon_dtype dtype) {
  opencl_device *d = opencl_of(queue);
  if (queue->record || d->is_checking || (int)dtype >= OPENCL_DTYPES || d->trust[entry][dtype]) return TIGON_OK;
  const verdict *v = trusts_all() ? NULL : judge(queue, entry, dtype, true);
  if (v && v->sentence) {
    queue->reason = v->sentence;
    return v->sentence == no_memory ? TIGON_ERROR_OUT_OF_MEMORY : TIGON_ERROR_DEVICE;
  }
  d->trust[entry][dtype] = true;
  return TIGON_OK;
}

const char *opencl_refused(tigon_queue *queue, int entry, tigon_dtype dtype, bool run) {
  const verdict *v = trusts_all() ? NULL : judge(queue, entry, dtype, run);
  return v ? v->sentence : NULL;
}
