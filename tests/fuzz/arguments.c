/* Arguments at random, mostly legal: the same call on the CPU and on the oracle, each in its own copy of one block of memory.
 * Both must give the same status and sentence; after an error neither may have written a byte; after a success only outputs
 * may differ, and those by rounding alone. Built with libFuzzer (`make fuzz`) the bytes come from it; else this program
 * makes inputs of its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/views.h"
#include "fuzz/bytes.h"

enum { ARENA = 1 << 18, WORKSPACE = 1 << 16, MOST_ENTRIES = 128 };
static int entries;

/* ---- making a call ---- */

static call_choices choose(bytes *b) {
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_F16, TIGON_BF16};
  call_choices how = {.dtype = dtypes[take(b, 1) % 3], .absent = take(b, 5), .wide = take(b, 5)};
  int64_t *of = how.extents;
  of['b'] = (int64_t)(take(b, 1) % 4);
  of['t'] = (int64_t)(take(b, 1) % 6);
  of['s'] = of['t'] + (int64_t)(take(b, 1) % 4);
  of['p'] = of['t'] + (int64_t)(take(b, 1) % 4);
  of['c'] = (int64_t)(take(b, 1) % 140);
  of['v'] = 1 + (int64_t)(take(b, 1) % 40);
  of['d'] = 2 * (1 + (int64_t)(take(b, 1) % 10));
  const int64_t small = (int64_t)take(b, 1);
  of['k'] = small % 2 ? 1 + small / 2 % 2 : 1 + small / 2 % 24;
  of['h'] = of['k'] * (1 + (int64_t)(take(b, 1) % 2));
  of['g'] = 1 + (int64_t)(take(b, 1) % 2);
  of['n'] = of['g'] * (1 + (int64_t)(take(b, 1) % 8));
  how.leading = 1 + (int)(take(b, 1) % 3);
  how.pad = (int64_t)(take(b, 1) % 5);
  how.numbers = (uint32_t)take(b, 3);
  how.beyond = take(b, 1) % 8 == 0;
  return how;
}

/* Numbers that break things. */
static int64_t odd_number(bytes *b) {
  static const int64_t odd[] = {0, -1, 1, 2, 3, 7, 8, 63, INT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX / 4, 1 << 20};
  const uint64_t pick = take(b, 1);
  return pick < 200 ? odd[pick % (sizeof odd / sizeof *odd)] : (int64_t)take(b, 8);
}

/* One field of one tensor, wrong or legal after all. */
static void spoil_tensor(bytes *b, tigon_tensor *t, char *arena) {
  const int d = (int)(take(b, 1) % 3);
  switch (take(b, 1) % 7) {
    case 0: t->data = NULL; break;
    case 1: t->data = arena + take(b, 3) % ARENA; break; /* overlaps, or is not aligned */
    case 2: t->dtype = (tigon_dtype)(take(b, 1) % 9); break;
    case 3: t->ndim = (int32_t)odd_number(b); break;
    case 4: t->shape[d] = odd_number(b); break;
    case 5: t->strides[d] = odd_number(b); break;
    default: memset(t, 0, sizeof *t); break; /* absent */
  }
}

/* A number, the workspace, a reserved word, a list's count. */
static void spoil_option(bytes *b, const tigon_field *field, void *at, char *arena) {
  void *const places[] = {NULL, arena + 1, arena + ARENA - WORKSPACE};
  const size_t counts[] = {0, 63, 64, WORKSPACE};
  const int64_t word = odd_number(b);
  const double number = (double)(int64_t)take(b, 2) / 64;
  call_list *list = at;
  switch (field->kind) {
    case TIGON_FIELD_WORKSPACE:
      *(call_workspace *)at = (call_workspace){places[word & 1], counts[take(b, 1) % 4]};
      break;
    case TIGON_FIELD_LIST:
      if (word & 1) list->elements = NULL;
      list->count = word < CALL_ELEMENTS ? word : CALL_ELEMENTS; /* what is behind the end is no tensor of the call */
      break;
    case TIGON_FIELD_RESERVED: ((int64_t *)at)[take(b, 1) % 4] = word; break;
    case TIGON_FIELD_INT: *(int *)at = (int)word; break;
    case TIGON_FIELD_BLOCKS: break; /* an address that is none may be followed */
    default: memcpy(at, take(b, 1) % 2 ? (const void *)&word : (const void *)&number, 8); break;
  }
}

static void spoil(bytes *b, call *c, char *arena) {
  const tigon_field *field = &c->schema->fields[take(b, 1) % (uint64_t)c->schema->count];
  void *at = call_field(c, field, (int)(take(b, 1) % CALL_ELEMENTS));
  if (field->kind == TIGON_FIELD_TENSOR)
    spoil_tensor(b, at, arena);
  else
    spoil_option(b, field, at, arena);
}

/* Does the tensor belong to the call, and not to an element behind the end of its list? */
static bool is_given(call *c, const view *v) {
  if (!(v->field->flags & TIGON_FIELD_EACH)) return v->x->data;
  const call_list *list = call_field(c, c->schema->fields, 0);
  return v->x->data && v->element < list->count;
}

/* Out of the arena but describable, or rows without end and without an element: legal for the library, not for this test. */
static bool leaves_arena(const tigon_tensor *t, const char *arena) {
  if (t->ndim < 1 || t->ndim > TIGON_MAX_DIMS) return false;
  double reach = 1;
  bool empty = false, endless = false;
  for (int d = 0; d < t->ndim; ++d) {
    const int64_t stride = t->strides[d];
    if (t->shape[d] < 0 || stride < 0) return false; /* refused */
    empty = empty || t->shape[d] == 0;
    endless = endless || t->shape[d] > ARENA;
    reach += (double)(t->shape[d] - 1) * (double)(stride ? stride : t->shape[d]);
  }
  return empty ? endless : (double)((const char *)t->data - arena) + reach * 8 > ARENA - WORKSPACE;
}

/* A head's logits are sums: a log-sum-exp within [-1, 1] makes probabilities of thousands of them, and gradients that cancel. */
static void raise_lse(call *c) {
  const tigon_field *field = strcmp(c->schema->op, "linear_logprob") == 0 ? call_find(c, "lse") : NULL;
  if (!field || field->flags & TIGON_FIELD_OUT) return;
  const tigon_tensor *lse = call_tensor(c, field, 0);
  for (int64_t i = 0; i < count_of(lse); ++i) ((float *)lse->data)[i] += 8;
}

/* The same bytes give the same call, but for where the arena is. False: not for this test. */
static bool make_call(bytes b, char *arena, call *c) {
  const int entry = (int)(take(&b, 1) % (uint64_t)entries);
  const uint64_t spoils = take(&b, 1) % 5 / 2, at = (take(&b, 1) % 8) * 8;
  const call_choices how = choose(&b);
  if (!call_make(c, entry, tigon_schema_at(entry), &how, arena + at, ARENA - WORKSPACE - at)) return false;
  call_set_workspace(c, arena + ARENA - WORKSPACE, WORKSPACE);
  raise_lse(c);
  for (uint64_t i = 0; i < spoils; ++i) spoil(&b, c, arena);
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1))
    if (is_given(c, &v) && leaves_arena(v.x, arena)) return false;
  return true;
}

/* ---- comparing ---- */

static long done[MOST_ENTRIES], refused[MOST_ENTRIES]; /* calls */
static tigon_context *contexts[2];
static char *arenas[2], fresh[ARENA], before[ARENA]; /* before: as it was when the op was called */

static void die(const char *what, const call *c) {
  fprintf(stderr, "%s: %s\n  cpu: %s\n  ref: %s\n", c->schema->name, what, tigon_last_error(contexts[0]),
          tigon_last_error(contexts[1]));
  abort();
}

/* Within a few per cent of the largest term that an op could have added up: far beyond rounding, far below a bug. A step of f8e4m3 is
 * an eighth. */
static bool close_enough(double a, double b, tigon_dtype dtype, double more) {
  if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) return true; /* near an overflow the two may differ */
  return fabs(a - b) <= (dtype == TIGON_F8E4M3 ? 0.125 : 0.05) * fmax(1, fmax(fabs(a), fabs(b))) + more;
}

/* Terms that were rounded to 16 bits on their way may cancel: what is left is off by a step of the largest. Beside an infinity nothing is sure. */
static double rounded_terms(call *c, const view *of) {
  double step = 0, most = 0;
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1))
    if (is_given(c, &v)) step = fmax(step, v.x->dtype == TIGON_BF16 ? 0x1p-8 : v.x->dtype == TIGON_F16 ? 0x1p-11 : 0);
  for (int64_t i = 0; step > 0 && i < count_of(of->x); ++i) most = fmax(most, fabs(value_of(of->x, i)));
  return most > 0 ? most * step : 0;
}

/* Scores beyond 2^24 have no digits behind the point: the CPU's softmax is far from the oracle's there. A temperature divides
 * them, and its square may multiply what is left of their differences. */
static bool has_huge_number(call *c) {
  const tigon_field *own = call_find(c, "by_temperature_squared");
  const tigon_field *squared = own ? own : call_find(c, "options.by_temperature_squared");
  const bool multiplies = squared && *(const int *)call_field(c, squared, 0);
  for (int i = 0; i < c->schema->count; ++i) {
    const tigon_field *field = &c->schema->fields[i];
    if (field->kind != TIGON_FIELD_DOUBLE) continue;
    const double x = fabs(*(const double *)call_field(c, field, 0));
    if (x > 0x1p6 && strstr(field->name, "temperature") && multiplies) return true;
    if (x > 0x1p24 || (x > 0 && 1 / x > 0x1p20 && strstr(field->name, "temperature"))) return true;
  }
  return false;
}

/* A head's logits are rounded, so that a clipped ratio, a hinge, a sign or the order of two rewards may be on the other side. */
static bool may_jump(call *c, const char *name) {
  if (strstr(c->schema->op, "divergence")) { /* gradients and stats of TVD are made of signs */
    const tigon_field *own = call_find(c, "kind"), *kind = own ? own : call_find(c, "options.kind");
    return (name[0] == 'd' || strstr(name, "stats")) && *(const int *)call_field(c, kind, 0) == TIGON_DIVERGENCE_TVD;
  }
  if (strcmp(c->schema->op, "fused_moe") == 0) /* what is made again is rounded, and clamped or not */
    return name[0] == 'd' && *(const double *)call_field(c, call_find(c, "clamp"), 0) > 0;
  const bool policy = strcmp(c->schema->op, "fused_linear_policy") == 0;
  if (!policy && strcmp(c->schema->op, "fused_linear_preference") != 0) return false;
  const int kind = *(const int *)call_field(c, call_find(c, "options.kind"), 0);
  const bool slopes = policy ? kind <= TIGON_POLICY_LUSPO : kind == TIGON_PREFERENCE_HINGE;
  return strncmp(name, policy ? "clip" : "accuracy", 4) == 0 || (slopes && name[0] == 'd');
}

/* A ratio of a head's token is e to what was rounded: a large one has no sure digit, nor has what is left of gradients in which such cancel. */
static bool has_large_ratios(call *c) {
  double most = 0;
  if (strcmp(c->schema->op, "fused_linear_policy") != 0) return false;
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1)) {
    const bool compared = v.field->flags & TIGON_FIELD_OUT && v.field->name[0] != 'd' && is_given(c, &v);
    for (int64_t i = 0; compared && i < count_of(v.x); ++i) most = fmax(most, fabs(value_of(v.x, i)));
  }
  return most > 0x1p10;
}

static void compare_outputs(call calls[2]) {
  const bool has_large = has_large_ratios(&calls[0]);
  for (view v = view_at(&calls[0], 0); v.x; v = view_at(&calls[0], v.k + 1)) {
    const bool written = v.field->flags & TIGON_FIELD_OUT && is_given(&calls[0], &v);
    if (may_jump(&calls[0], v.field->name)) continue;
    const double more = written ? rounded_terms(&calls[0], &v) : 0;
    for (int64_t i = 0; written && i < count_of(v.x); ++i) {
      const double x = value_of(v.x, i), y = value_of(twin(&calls[1], &v), i);
      if (is_index(v.x) ? x == y : close_enough(x, y, v.x->dtype, more)) continue;
      if (has_large && (v.field->name[0] == 'd' || fmin(fabs(x), fabs(y)) > 0x1p10)) continue;
      fprintf(stderr, "%s, element %lld: %g and %g\n", v.field->name, (long long)i, x, y);
      die("outputs differ", &calls[0]);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!contexts[0]) {
    const tigon_context_desc descs[2] = {{.device = "cpu", .threads = 1}, {.device = "ref", .threads = 1}};
    for (int i = 0; i < 2; ++i) {
      arenas[i] = aligned_alloc(64, ARENA);
      if (!arenas[i] || tigon_context_create(&descs[i], &contexts[i]) != TIGON_OK) abort();
    }
    fill_numbers(fresh, ARENA);
    while (tigon_schema_at(entries)) ++entries;
    if (entries > MOST_ENTRIES) abort();
  }
  static call calls[2];
  tigon_status status[2];
  for (int i = 0; i < 2; ++i) {
    memcpy(arenas[i], fresh, ARENA);
    if (!make_call((bytes){data, size}, arenas[i], &calls[i])) return 0;
    if (i == 0) memcpy(before, arenas[i], ARENA);
    status[i] = call_run(&calls[i], contexts[i]);
  }
  /* How much workspace a call takes is each backend's own, and the oracle takes none. */
  const bool own_workspace =
      status[0] != TIGON_OK && status[1] == TIGON_OK && strstr(tigon_last_error(contexts[0]), ": workspace");
  if (status[0] != status[1] && !own_workspace) die("the statuses differ", &calls[0]);
  if (status[0] != TIGON_OK) {
    if (!own_workspace && strcmp(tigon_last_error(contexts[0]), tigon_last_error(contexts[1])) != 0)
      die("the sentences differ", &calls[0]);
    for (int i = 0; i < 2 - own_workspace; ++i)
      if (memcmp(arenas[i], before, ARENA) != 0) die("an error, and something was written", &calls[0]);
    ++refused[calls[0].entry];
    return 0;
  }
  if (!has_huge_number(&calls[0])) compare_outputs(calls);
  ++done[calls[0].entry];
  return 0;
}

#if !defined(TIGON_LIBFUZZER)
/* Each entry must be called and refused often, else its inputs are worth nothing. */
int main(void) {
  const int inputs = 100000;
  uint64_t state = 1;
  for (int i = 0; i < inputs; ++i) {
    uint8_t data[96];
    for (size_t at = 0; at < sizeof data; ++at) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      data[at] = (uint8_t)(state >> 56);
    }
    LLVMFuzzerTestOneInput(data, sizeof data);
  }
  int poor = 0;
  for (int i = 0; i < entries; ++i) {
    const bool rich = done[i] > inputs / entries / 8 && refused[i] > inputs / entries / 8;
    printf("%s: %ld calls done, %ld refused%s\n", tigon_schema_at(i)->name, done[i], refused[i],
           rich ? "" : ": too few");
    poor += !rich;
  }
  return poor > 0;
}
#endif
