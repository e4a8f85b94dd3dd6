/* Arguments at random, mostly legal: the same call on the CPU and on the oracle, each in its own copy of one block of memory.
 * Both must give the same status and sentence; after an error neither may have written a byte; after a success only outputs
 * may differ, and those by rounding alone. Built with libFuzzer (`make fuzz`) the bytes come from it; else this program
 * replays arguments.corpus, a line of hex an input, and inputs of its own, or the files that it is given. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "tigon/tigon.h"

enum { ARENA = 1 << 17, MOST_TENSORS = 8, WORKSPACE = 1 << 15 };

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

/* ---- a call ---- */

typedef union arguments {
  tigon_rms_norm_fwd_args rms_norm_fwd;
  tigon_rms_norm_bwd_args rms_norm_bwd;
  tigon_layer_norm_fwd_args layer_norm_fwd;
  tigon_layer_norm_bwd_args layer_norm_bwd;
  tigon_swiglu_fwd_args swiglu_fwd;
  tigon_swiglu_bwd_args swiglu_bwd;
  tigon_geglu_fwd_args geglu_fwd;
  tigon_relu_squared_fwd_args relu_squared_fwd;
  tigon_softmax_fwd_args softmax_fwd;
  tigon_softmax_bwd_args softmax_bwd;
} arguments;

/* One tensor of an op: where it lies in the arguments, and what it is when it is legal. */
typedef enum kind { WIDE, COLUMN, ROW } kind; /* [rows, cols] of the dtype; [cols] f32 or the dtype; [rows] f32 */
typedef struct part {
  size_t offset;
  kind kind;
  bool out;
} part;

typedef struct target {
  tigon_status (*call)(tigon_context *context, const arguments *a);
  size_t bytes; /* of the struct: what follows the tensors is options */
  size_t workspace, workspace_bytes;
  part parts[MOST_TENSORS];
} target;

#define CALL(op) \
  static tigon_status call_##op(tigon_context *context, const arguments *a) { return tigon_##op(context, &a->op); }
CALL(rms_norm_fwd)
CALL(rms_norm_bwd)
CALL(layer_norm_fwd)
CALL(layer_norm_bwd)
CALL(swiglu_fwd)
CALL(swiglu_bwd)
CALL(geglu_fwd)
CALL(relu_squared_fwd)
CALL(softmax_fwd)
CALL(softmax_bwd)

#define AT(op, field) offsetof(tigon_##op##_args, field)
#define SIZE(op) sizeof(tigon_##op##_args)
static const target targets[] = {
    {call_rms_norm_fwd,
     SIZE(rms_norm_fwd),
     0,
     0,
     {{AT(rms_norm_fwd, x), WIDE, false},
      {AT(rms_norm_fwd, w), COLUMN, false},
      {AT(rms_norm_fwd, y), WIDE, true},
      {AT(rms_norm_fwd, rstd), ROW, true}}},
    {call_rms_norm_bwd,
     SIZE(rms_norm_bwd),
     AT(rms_norm_bwd, workspace),
     AT(rms_norm_bwd, workspace_bytes),
     {{AT(rms_norm_bwd, dy), WIDE, false},
      {AT(rms_norm_bwd, x), WIDE, false},
      {AT(rms_norm_bwd, w), COLUMN, false},
      {AT(rms_norm_bwd, rstd), ROW, false},
      {AT(rms_norm_bwd, dx), WIDE, true},
      {AT(rms_norm_bwd, dw), COLUMN, true}}},
    {call_layer_norm_fwd,
     SIZE(layer_norm_fwd),
     0,
     0,
     {{AT(layer_norm_fwd, x), WIDE, false},
      {AT(layer_norm_fwd, w), COLUMN, false},
      {AT(layer_norm_fwd, b), COLUMN, false},
      {AT(layer_norm_fwd, y), WIDE, true},
      {AT(layer_norm_fwd, mean), ROW, true},
      {AT(layer_norm_fwd, rstd), ROW, true}}},
    {call_layer_norm_bwd,
     SIZE(layer_norm_bwd),
     AT(layer_norm_bwd, workspace),
     AT(layer_norm_bwd, workspace_bytes),
     {{AT(layer_norm_bwd, dy), WIDE, false},
      {AT(layer_norm_bwd, x), WIDE, false},
      {AT(layer_norm_bwd, w), COLUMN, false},
      {AT(layer_norm_bwd, mean), ROW, false},
      {AT(layer_norm_bwd, rstd), ROW, false},
      {AT(layer_norm_bwd, dx), WIDE, true},
      {AT(layer_norm_bwd, dw), COLUMN, true},
      {AT(layer_norm_bwd, db), COLUMN, true}}},
    {call_swiglu_fwd,
     SIZE(swiglu_fwd),
     0,
     0,
     {{AT(swiglu_fwd, a), WIDE, false}, {AT(swiglu_fwd, b), WIDE, false}, {AT(swiglu_fwd, c), WIDE, true}}},
    {call_swiglu_bwd,
     SIZE(swiglu_bwd),
     0,
     0,
     {{AT(swiglu_bwd, dc), WIDE, false},
      {AT(swiglu_bwd, a), WIDE, false},
      {AT(swiglu_bwd, b), WIDE, false},
      {AT(swiglu_bwd, da), WIDE, true},
      {AT(swiglu_bwd, db), WIDE, true}}},
    {call_geglu_fwd,
     SIZE(geglu_fwd),
     0,
     0,
     {{AT(geglu_fwd, a), WIDE, false}, {AT(geglu_fwd, b), WIDE, false}, {AT(geglu_fwd, c), WIDE, true}}},
    {call_relu_squared_fwd,
     SIZE(relu_squared_fwd),
     0,
     0,
     {{AT(relu_squared_fwd, x), WIDE, false}, {AT(relu_squared_fwd, y), WIDE, true}}},
    {call_softmax_fwd,
     SIZE(softmax_fwd),
     0,
     0,
     {{AT(softmax_fwd, x), WIDE, false}, {AT(softmax_fwd, mask), COLUMN, false}, {AT(softmax_fwd, y), WIDE, true}}},
    {call_softmax_bwd,
     SIZE(softmax_bwd),
     0,
     0,
     {{AT(softmax_bwd, dy), WIDE, false}, {AT(softmax_bwd, y), WIDE, false}, {AT(softmax_bwd, dx), WIDE, true}}},
};
enum { TARGETS = sizeof targets / sizeof *targets };

static tigon_tensor *tensor_at(arguments *a, const part *p) { return (tigon_tensor *)(void *)((char *)a + p->offset); }
static int tensor_count(const target *t) {
  int count = 0;
  while (count < MOST_TENSORS && (count == 0 || t->parts[count].offset)) ++count;
  return count;
}

/* ---- making one ---- */

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

/* One 8-byte word behind the tensors: eps, flags, workspace, reserved. */
static void spoil_option(bytes *b, const target *t, arguments *a, char *arena) {
  size_t first = 0;
  for (int i = 0; i < tensor_count(t); ++i)
    if (t->parts[i].offset + sizeof(tigon_tensor) > first) first = t->parts[i].offset + sizeof(tigon_tensor);
  const size_t words = (t->bytes - first) / 8, at = first + take(b, 1) % words * 8;
  if (t->workspace && at == t->workspace) {
    void *const places[] = {NULL, arena + 1, arena + ARENA - WORKSPACE};
    memcpy((char *)a + at, &places[take(b, 1) % 3], sizeof *places);
  } else if (t->workspace && at == t->workspace_bytes) {
    const size_t sizes[] = {0, 63, 64, WORKSPACE};
    memcpy((char *)a + at, &sizes[take(b, 1) % 4], sizeof(size_t));
  } else {
    const int64_t word = odd_number(b);
    const double number = (double)(int64_t)take(b, 2) / 64;
    memcpy((char *)a + at, take(b, 1) % 2 ? (const void *)&word : (const void *)&number, 8);
  }
}

/* Elements of a tensor that is out of the arena but describable: legal for the library, not for this test. */
static bool leaves_arena(const tigon_tensor *t, const char *arena) {
  if (!t->data || t->ndim < 1 || t->ndim > TIGON_MAX_DIMS) return false;
  double reach = 1;
  for (int d = 0; d < t->ndim; ++d) {
    if (t->shape[d] <= 0) return false;
    const int64_t stride = t->strides[d];
    if (stride < 0) return false; /* refused */
    reach += (double)(t->shape[d] - 1) * (double)(stride ? stride : t->shape[d]);
  }
  return (double)((const char *)t->data - arena) + reach * 8 > ARENA - WORKSPACE;
}

typedef struct call {
  const target *target;
  arguments a;
  char *arena;
} call;

/* The same bytes give the same call, but for where the arena is. False: not for this test. */
static bool make_call(bytes b, char *arena, call *c) {
  *c = (call){.target = &targets[take(&b, 1) % TARGETS], .arena = arena};
  const target *t = c->target;
  const int64_t rows = (int64_t)(take(&b, 1) % 9), cols = (int64_t)(take(&b, 1) % 140),
                pad = (int64_t)(take(&b, 1) % 5);
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_F16, TIGON_BF16}, dtype = dtypes[take(&b, 1) % 3];
  const uint64_t choices = take(&b, 2);
  char *next = arena + (take(&b, 1) % 8) * 4;
  for (int i = 0; i < tensor_count(t); ++i) {
    const part *p = &t->parts[i];
    const tigon_dtype other = choices >> i & 1 ? TIGON_F32 : dtype;
    tigon_tensor made = p->kind == WIDE     ? tigon_tensor_2d(next, dtype, rows, cols)
                        : p->kind == COLUMN ? tigon_tensor_1d(next, other, cols)
                                            : tigon_tensor_1d(next, TIGON_F32, rows);
    if (p->kind == WIDE) made.strides[0] = cols + pad;
    next += ((rows * (cols + pad) + cols + rows) * 4 + 63) / 64 * 64;
    *tensor_at(&c->a, p) = made;
  }
  if (t->workspace) {
    char *const workspace = arena + ARENA - WORKSPACE;
    const size_t size = WORKSPACE;
    memcpy((char *)&c->a + t->workspace, &workspace, sizeof workspace);
    memcpy((char *)&c->a + t->workspace_bytes, &size, sizeof size);
  }
  for (uint64_t spoils = take(&b, 1) % 4; spoils > 0; --spoils) {
    if (take(&b, 1) % 3)
      spoil_tensor(&b, tensor_at(&c->a, &t->parts[take(&b, 1) % (unsigned)tensor_count(t)]), arena);
    else
      spoil_option(&b, t, &c->a, arena);
  }
  for (int i = 0; i < tensor_count(t); ++i)
    if (leaves_arena(tensor_at(&c->a, &t->parts[i]), arena)) return false;
  return true;
}

/* ---- comparing ---- */

static long done, refused; /* calls */
static tigon_context *contexts[2];
static char *arenas[2], *before;

static void die(const char *what, const call *c) {
  fprintf(stderr, "target %d: %s\n  cpu: %s\n  ref: %s\n", (int)(c->target - targets), what,
          tigon_last_error(contexts[0]), tigon_last_error(contexts[1]));
  abort();
}

/* Within a few per cent of the largest term that an op could have added up: far beyond rounding, far below a bug. */
static bool close_enough(double a, double b) {
  if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) return true; /* near an overflow the two may differ */
  return fabs(a - b) <= 0.05 * fmax(1, fmax(fabs(a), fabs(b)));
}

static void compare_outputs(const call calls[2]) {
  const target *t = calls[0].target;
  for (int i = 0; i < tensor_count(t); ++i) {
    if (!t->parts[i].out) continue;
    call copies[2] = {calls[0], calls[1]};
    const tigon_tensor *a = tensor_at(&copies[0].a, &t->parts[i]), *b = tensor_at(&copies[1].a, &t->parts[i]);
    if (!a->data) continue;
    const int64_t cols = a->shape[a->ndim - 1];
    int64_t rows = 1;
    for (int d = 0; d < a->ndim - 1; ++d) rows *= a->shape[d];
    if (a->ndim > 2) continue;
    const int64_t pitch = a->ndim == 2 && a->strides[0] ? a->strides[0] : cols;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t col = 0; col < cols; ++col)
        if (!close_enough(tigon_load_f64(a->data, r * pitch + col, a->dtype),
                          tigon_load_f64(b->data, r * pitch + col, b->dtype)))
          die("outputs differ", &calls[0]);
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
    before = malloc(ARENA);
    if (!before) abort();
    fill(before);
  }
  call calls[2];
  tigon_status status[2];
  for (int i = 0; i < 2; ++i) {
    memcpy(arenas[i], before, ARENA);
    if (!make_call((bytes){data, size}, arenas[i], &calls[i])) return 0;
    status[i] = calls[i].target->call(contexts[i], &calls[i].a);
  }
  if (status[0] != status[1]) die("the statuses differ", &calls[0]);
  if (status[0] != TIGON_OK) {
    if (strcmp(tigon_last_error(contexts[0]), tigon_last_error(contexts[1])) != 0)
      die("the sentences differ", &calls[0]);
    for (int i = 0; i < 2; ++i)
      if (memcmp(arenas[i], before, ARENA) != 0) die("an error, and something was written", &calls[0]);
    ++refused;
    return 0;
  }
  compare_outputs(calls);
  ++done;
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

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (run_file(argv[i])) return 1;
  if (argc > 1) return 0;
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fuzz/arguments.corpus", getenv("TIGON_SOURCE") ? getenv("TIGON_SOURCE") : ".");
  if (run_corpus(path)) return 1;
  uint64_t state = 1;
  enum { OWN = 40000 };
  for (int i = 0; i < OWN; ++i) {
    uint8_t data[48];
    for (size_t at = 0; at < sizeof data; ++at) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      data[at] = (uint8_t)(state >> 56);
    }
    LLVMFuzzerTestOneInput(data, sizeof data);
  }
  printf("%d inputs of its own: %ld calls done, %ld refused\n", OWN, done, refused);
  return done < OWN / 4 || refused < OWN / 8; /* else the inputs are worth nothing */
}
#endif
