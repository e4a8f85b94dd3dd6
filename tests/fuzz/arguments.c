/* Arguments at random, mostly legal: the same call on the CPU and on the oracle, each in its own copy of one block of memory.
 * Both must give the same status and sentence; after an error neither may have written a byte; after a success only outputs
 * may differ, and those by rounding alone. Built with libFuzzer (`make fuzz`) the bytes come from it; else this program
 * replays arguments.corpus, a line of hex an input, and inputs of its own, or the files that it is given. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "fuzz/targets.h"

enum { ARENA = 1 << 18, WORKSPACE = 1 << 16 };

/* ---- bytes ---- */

typedef struct bytes {
  const uint8_t *data;
  size_t left;
} bytes;

static uint64_t take(bytes *b, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count && b->left; ++i, ++b->data, --b->left) value = value << 8 | *b->data;
  return value;
}

/* ---- making a call ---- */

static tigon_tensor *tensor_at(arguments *a, const part *p) { return (tigon_tensor *)(void *)((char *)a + p->offset); }
static int tensor_count(const target *t) {
  int count = 0;
  while (count < MOST_TENSORS && t->parts[count].shape) ++count;
  return count;
}

/* The extents that letters stand for. */
typedef struct sizes {
  int64_t of[128];
} sizes;

static sizes fill_sizes(bytes *b) {
  sizes s;
  for (int i = 0; i < 128; ++i) s.of[i] = 1;
  s.of['r'] = (int64_t)(take(b, 1) % 9);             /* rows */
  s.of['c'] = (int64_t)(take(b, 1) % 140);           /* columns */
  s.of['b'] = (int64_t)(take(b, 1) % 4);             /* batches */
  s.of['t'] = (int64_t)(take(b, 1) % 6);             /* tokens, positions */
  s.of['s'] = s.of['t'] + (int64_t)(take(b, 1) % 4); /* keys, rows of a table */
  s.of['v'] = 1 + (int64_t)(take(b, 1) % 40);        /* vocabulary */
  s.of['w'] = 1 + (int64_t)(take(b, 1) % 24);        /* width */
  s.of['d'] = 1 + (int64_t)(take(b, 1) % 20);        /* head_dim */
  const uint64_t small = take(b, 1);
  s.of['k'] = 1 + (int64_t)(small & 1);                    /* key heads */
  s.of['p'] = s.of['k'] * (1 + (int64_t)(small >> 1 & 1)); /* query heads */
  s.of['g'] = 1 + (int64_t)(small >> 2 & 1);               /* groups */
  s.of['n'] = s.of['g'] * (1 + (int64_t)(small >> 3 & 3)); /* channels */
  s.of['f'] = (s.of['d'] + 1) / 2;                         /* pairs of a head */
  s.of['e'] = 2 * s.of['f'];                               /* an even head_dim */
  s.of['m'] = s.of['b'] * s.of['t'];
  return s;
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

/* One 8-byte word beside the tensors: eps, flags, workspace, reserved. A list's pointer does not count. */
static void spoil_option(bytes *b, const target *t, arguments *a, char *arena) {
  const size_t at = take(b, 2) % (t->bytes / 8) * 8;
  for (int i = 0; i < tensor_count(t); ++i)
    if (at >= t->parts[i].offset && at < t->parts[i].offset + sizeof(tigon_tensor)) return;
  if (t->workspace && at == t->workspace) {
    void *const places[] = {NULL, arena + 1, arena + ARENA - WORKSPACE};
    memcpy((char *)a + at, &places[take(b, 1) % 3], sizeof *places);
  } else if (t->workspace && at == t->workspace_bytes) {
    const size_t counts[] = {0, 63, 64, WORKSPACE};
    memcpy((char *)a + at, &counts[take(b, 1) % 4], sizeof(size_t));
  } else {
    const int64_t word = odd_number(b);
    const double number = (double)(int64_t)take(b, 2) / 64;
    memcpy((char *)a + at, take(b, 1) % 2 ? (const void *)&word : (const void *)&number, 8);
  }
}

/* Out of the arena but describable, or rows without end and without an element: legal for the library, not for this test. */
static bool leaves_arena(const tigon_tensor *t, const char *arena) {
  if (!t->data || t->ndim < 1 || t->ndim > TIGON_MAX_DIMS) return false;
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

typedef struct call {
  const target *target;
  arguments a;
  char *arena;
} call;

/* A legal tensor at `data`; indices are written there. Returns its bytes. */
static int64_t make_tensor(bytes *b, const part *p, const sizes *sizes, tigon_dtype dtype, bool wide, int64_t pad,
                           char *data, tigon_tensor *made) {
  const bool index = p->dtype >= 'A' && p->dtype <= 'Z';
  *made = (tigon_tensor){.data = data, .ndim = (int32_t)strlen(p->shape)};
  made->dtype = index             ? (wide ? TIGON_I64 : TIGON_I32)
                : p->dtype == 'l' ? TIGON_I64
                : p->dtype == 'e' ? TIGON_I32
                : p->dtype == 'x' ? dtype
                : p->dtype == 'f' ? TIGON_F32
                : wide            ? TIGON_F32
                                  : dtype;
  int64_t step = 1;
  for (int d = made->ndim - 1; d >= 0; --d) {
    made->shape[d] = sizes->of[(unsigned char)p->shape[d]];
    made->strides[d] = step;
    step *= made->shape[d] > 0 ? made->shape[d] : 1;
    if (d == made->ndim - 1 && made->ndim > 1 && p->dtype == 'x') step += pad;
  }
  const int64_t limit = index ? sizes->of[p->dtype - 'A' + 'a'] : 0;
  for (int64_t i = 0; i < step && index; ++i) {
    const int64_t value = limit > 0 ? (int64_t)(take(b, 1) % (uint64_t)(limit + (pad == 4))) : 0;
    const int32_t narrow = (int32_t)value;
    if (wide)
      memcpy(data + 8 * i, &value, 8);
    else
      memcpy(data + 4 * i, &narrow, 4);
  }
  return step * (int64_t)tigon_dtype_size(made->dtype);
}

/* The same bytes give the same call, but for where the arena is. False: not for this test. */
static bool make_call(bytes b, char *arena, call *c) {
  *c = (call){.target = &targets[take(&b, 1) % TARGETS], .arena = arena};
  const target *t = c->target;
  const uint64_t spoils = take(&b, 1) % 4, choices = take(&b, 2), absent = take(&b, 2);
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_F16, TIGON_BF16}, dtype = dtypes[take(&b, 1) % 3];
  const sizes s = fill_sizes(&b);
  const int64_t pad = (int64_t)(take(&b, 1) % 5);
  set_options(t, &c->a, s.of['g'], (unsigned)take(&b, 1));
  char *next = arena + (take(&b, 1) % 8) * 8;
  for (int i = 0; i < tensor_count(t); ++i) {
    const part *p = &t->parts[i];
    if (p->optional && absent >> i & 1) continue;
    next += (make_tensor(&b, p, &s, dtype, choices >> i & 1, pad, next, tensor_at(&c->a, p)) + 63) / 64 * 64;
    if (next - arena > ARENA - WORKSPACE) return false;
  }
  if (t->workspace) {
    char *const workspace = arena + ARENA - WORKSPACE;
    const size_t size = WORKSPACE;
    memcpy((char *)&c->a + t->workspace, &workspace, sizeof workspace);
    memcpy((char *)&c->a + t->workspace_bytes, &size, sizeof size);
  }
  for (uint64_t i = 0; i < spoils; ++i) {
    if (take(&b, 1) % 3)
      spoil_tensor(&b, tensor_at(&c->a, &t->parts[take(&b, 1) % (unsigned)tensor_count(t)]), arena);
    else
      spoil_option(&b, t, &c->a, arena);
  }
  if (t->call == call_adamw_step)
    forget_behind(c->a.adamw_step.args.count, c->a.adamw_step.params, sizeof *c->a.adamw_step.params);
  if (t->call == call_adamw_clip)
    forget_behind(c->a.adamw_clip.args.count, c->a.adamw_clip.grads, sizeof *c->a.adamw_clip.grads);
  for (int i = 0; i < tensor_count(t); ++i)
    if (leaves_arena(tensor_at(&c->a, &t->parts[i]), arena)) return false;
  return true;
}

/* ---- comparing ---- */

static long done[TARGETS], refused[TARGETS]; /* calls */
static tigon_context *contexts[2];
static char *arenas[2], *fresh, *before; /* before: as it was when the op was called */

static void die(const char *what, const call *c) {
  fprintf(stderr, "%s: %s\n  cpu: %s\n  ref: %s\n", c->target->name, what, tigon_last_error(contexts[0]),
          tigon_last_error(contexts[1]));
  abort();
}

/* Within a few per cent of the largest term that an op could have added up: far beyond rounding, far below a bug. */
static bool close_enough(double a, double b) {
  if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) return true; /* near an overflow the two may differ */
  return fabs(a - b) <= 0.05 * fmax(1, fmax(fabs(a), fabs(b)));
}

/* Elements from a view's first to its element `index` in row-major order. Stride 0 everywhere means contiguous. */
static int64_t offset_of(const tigon_tensor *t, int64_t index) {
  int64_t offset = 0, step = 1;
  bool natural = true;
  for (int d = 0; d < t->ndim; ++d) natural = natural && t->strides[d] == 0;
  for (int d = t->ndim - 1; d >= 0; --d) {
    offset += index % t->shape[d] * (natural ? step : t->strides[d]);
    index /= t->shape[d];
    step *= t->shape[d];
  }
  return offset;
}

static void compare_outputs(call calls[2]) {
  const target *t = calls[0].target;
  for (int i = 0; i < tensor_count(t); ++i) {
    if (!t->parts[i].out) continue;
    const tigon_tensor *a = tensor_at(&calls[0].a, &t->parts[i]), *b = tensor_at(&calls[1].a, &t->parts[i]);
    if (!a->data || a->ndim == 0) continue;
    int64_t count = 1;
    for (int d = 0; d < a->ndim; ++d) count *= a->shape[d];
    for (int64_t e = 0; e < count; ++e) {
      const int64_t at = offset_of(a, e);
      const bool same =
          a->dtype == TIGON_I32 || a->dtype == TIGON_I64
              ? tigon_load_index(a->data, at, a->dtype) == tigon_load_index(b->data, at, b->dtype)
              : close_enough(tigon_load_f64(a->data, at, a->dtype), tigon_load_f64(b->data, at, b->dtype));
      if (same) continue;
      fprintf(stderr, "tensor %d, element %lld: %g and %g\n", i, (long long)e, tigon_load_f64(a->data, at, a->dtype),
              tigon_load_f64(b->data, at, b->dtype));
      die("outputs differ", &calls[0]);
    }
  }
}

static void fill(char *arena) {
  uint32_t state = 7;
  for (int i = 0; i < ARENA / 4; ++i) {
    state = state * 1664525u + 1013904223u;
    const uint16_t half = tigon_bf16_from_f32((float)(state >> 8) * 0x1p-23f - 1);
    const uint32_t word = (uint32_t)half << 16 | half; /* in [-1, 1) as f32 and as bf16, small as f16 */
    memcpy(arena + 4 * i, &word, 4);
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
    fresh = malloc(ARENA);
    before = malloc(ARENA);
    if (!fresh || !before) abort();
    fill(fresh);
  }
  call calls[2];
  tigon_status status[2];
  for (int i = 0; i < 2; ++i) {
    memcpy(arenas[i], fresh, ARENA);
    if (!make_call((bytes){data, size}, arenas[i], &calls[i])) return 0;
    if (i == 0) memcpy(before, arenas[i], ARENA);
    status[i] = calls[i].target->call(contexts[i], &calls[i].a);
  }
  if (status[0] != status[1]) die("the statuses differ", &calls[0]);
  if (status[0] != TIGON_OK) {
    if (strcmp(tigon_last_error(contexts[0]), tigon_last_error(contexts[1])) != 0)
      die("the sentences differ", &calls[0]);
    for (int i = 0; i < 2; ++i)
      if (memcmp(arenas[i], before, ARENA) != 0) die("an error, and something was written", &calls[0]);
    ++refused[calls[0].target - targets];
    return 0;
  }
  compare_outputs(calls);
  ++done[calls[0].target - targets];
  return 0;
}

#if !defined(TIGON_LIBFUZZER)
static int run_file(const char *path) {
  static uint8_t data[4096];
  FILE *file = fopen(path, "rb");
  if (!file) return perror(path), 1;
  const size_t size = fread(data, 1, sizeof data, file);
  fclose(file);
  return LLVMFuzzerTestOneInput(data, size);
}

static int run_corpus(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return perror(path), 1;
  static char line[8192];
  int count = 0;
  while (fgets(line, sizeof line, file)) {
    uint8_t data[4096];
    size_t size = 0;
    for (unsigned byte; sscanf(line + 2 * size, "%2x", &byte) == 1; ++size) data[size] = (uint8_t)byte;
    if (size > 0) LLVMFuzzerTestOneInput(data, size), ++count;
  }
  fclose(file);
  printf("%d inputs of the corpus\n", count);
  return count == 0;
}

/* Each target must be called and refused often, else its inputs are worth nothing. */
static int report(long inputs) {
  int poor = 0;
  for (int i = 0; i < TARGETS; ++i) {
    const bool rich = done[i] > inputs / TARGETS / 8 && refused[i] > inputs / TARGETS / 8;
    printf("%s: %ld calls done, %ld refused%s\n", targets[i].name, done[i], refused[i], rich ? "" : ": too few");
    poor += !rich;
  }
  return poor > 0;
}

static int run_own(long inputs) {
  uint64_t state = 1;
  for (long i = 0; i < inputs; ++i) {
    uint8_t data[96];
    for (size_t at = 0; at < sizeof data; ++at) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      data[at] = (uint8_t)(state >> 56);
    }
    LLVMFuzzerTestOneInput(data, sizeof data);
  }
  printf("%ld inputs of its own\n", inputs);
  return report(inputs);
}

/* A number is how many inputs of its own to run, anything else a file with an input. */
int main(int argc, char **argv) {
  char *end;
  if (argc == 2 && strtol(argv[1], &end, 10) > 0 && !*end) return run_own(strtol(argv[1], NULL, 10));
  for (int i = 1; i < argc; ++i)
    if (run_file(argv[i])) return 1;
  if (argc > 1) return 0;
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fuzz/arguments.corpus", getenv("TIGON_SOURCE") ? getenv("TIGON_SOURCE") : ".");
  return run_corpus(path) || run_own(100000);
}
#endif
