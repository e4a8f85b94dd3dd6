/* Which cases are timed: their sizes, and the options of the op's check that they have. */
#include <string.h>

#include "check/cases.h"

/* ---- the dimensions of each op's check ---- */

static void matrix(const bench_point *at, int64_t dims[CHECK_DIMS]) { dims[0] = at->rows, dims[1] = at->cols; }

static void batched(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = 1, dims[1] = at->rows, dims[2] = at->cols;
}

static void words(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  matrix(at, dims);
  dims[2] = at->other;
}

static void product(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows, dims[1] = at->other, dims[2] = at->cols;
}

/* 512 channels where the columns allow it, in groups of 16 of them. */
static void images(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  const int64_t channels = at->cols % 512 == 0 ? 512 : at->cols % 32 == 0 ? 32 : 1;
  dims[0] = at->rows, dims[1] = channels, dims[2] = at->cols / channels, dims[3] = channels == 512 ? 32 : 1;
}

/* A model's heads; else heads of `widest` where cols allows, else 64, else one, and a quarter as many of k where that
 * divides. */
static void heads(const bench_point *at, int64_t widest, int64_t dims[3]) {
  const int64_t width = at->head_dim             ? at->head_dim
                        : at->cols % widest == 0 ? widest
                        : at->cols % 64 == 0     ? 64
                                                 : at->cols;
  dims[0] = at->cols / width;
  dims[1] = at->kv_heads ? at->kv_heads : dims[0] % 4 == 0 ? dims[0] / 4 : dims[0];
  dims[2] = width;
}

/* A batch of 4 where that divides. */
static void turned(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows % 4 == 0 ? 4 : 1, dims[1] = at->rows / dims[0];
  heads(at, 128, dims + 2);
}

/* One causal sequence. */
static void sequence(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = 1, dims[1] = dims[2] = at->rows;
  heads(at, 64, dims + 3);
}

/* ---- the table ---- */

/* Options are in the order of bench_mode. */
static const bench_case cases[] = {
    {"rms_norm", "", 4096, 8192, 4096, 0, matrix, {0}, false, {0}},
    {"fused_add_rms_norm", "", 4096, 8192, 4096, 0, matrix, {0}, false, {0}},
    {"layer_norm", "", 4096, 8192, 4096, 0, matrix, {0}, false, {0}},
    {"group_norm", "batch x (512 channels * positions), 32 groups", 64, 128, 262144, 0, images, {0}, false, {0}},
    {"swiglu", "", 1536, 3072, 11008, 0, matrix, {0}, false, {0}},
    {"geglu", "tanh", 1536, 3072, 11008, 0, matrix, {0}, false, {0}},
    {"relu_squared", "", 4096, 8192, 4096, 0, matrix, {0}, false, {0}},
    {"modulated_rms_norm", "8 scales and shifts", 4096, 8192, 4096, 0, matrix, {6, 6}, false, {0}},
    {"rope", "tokens x (heads * 128)", 4096, 8192, 4096, 0, turned, {7, 7}, false, {0}},
    {"embedding", "tokens x hidden, as many words", 4096, 8192, 4096, BENCH_AS_ROWS, words, {0}, false, {0}},
    {"softmax", "", 4096, 8192, 4096, 0, batched, {6, 6}, false, {0}},
    {"attention", "tokens x (heads * 64), causal", 512, 512, 1024, 0, sequence, {5, 5}, false, {1, 2.5, 3.5}},
    {"cross_entropy", "tokens x vocabulary", 1024, 2048, 32000, 0, matrix, {0, 0, 7}, true, {0}},
    {"linear", "rows x K, N = K", 512, 512, 2048, BENCH_AS_COLS, product, {1, 6}, false, {1, 2, 3}},
    {"adamw", "", 4096, 8192, 4096, 0, matrix, {[BENCH_STEP] = 4, [BENCH_CLIP] = 4}, false, {0}},
    {"fused_linear_cross_entropy",
     "tokens x hidden, 16000 words",
     256,
     256,
     1024,
     16000,
     words,
     {6, 5, 5},
     true,
     {1, 3, 3}},
};

const bench_case *bench_case_find(const char *op) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    if (strcmp(cases[i].op, op) == 0) return &cases[i];
  return NULL;
}

/* The options of points that are as_weight. */
static const struct as_weight {
  const char *op;
  int option[BENCH_FULL + 1];
} as_weight[] = {{"linear", {1, 7}}, {"fused_linear_cross_entropy", {6, 8, 8}}};

static const struct as_weight *as_weight_of(const bench_case *chosen) {
  for (size_t i = 0; i < sizeof as_weight / sizeof *as_weight; ++i)
    if (strcmp(as_weight[i].op, chosen->op) == 0) return &as_weight[i];
  return NULL;
}

bool bench_has_as_weight(const bench_case *chosen) { return as_weight_of(chosen) != NULL; }

int bench_option(const bench_case *chosen, bench_mode mode, const bench_point *at) {
  return at->as_weight ? as_weight_of(chosen)->option[mode] : chosen->option[mode];
}

const char *bench_mode_name(bench_mode mode) {
  static const char *const names[BENCH_MODES] = {"fwd", "bwd", "full", "step", "clip"};
  return names[mode];
}

int64_t bench_other(const bench_case *chosen, const bench_point *at) {
  if (at->other) return at->other;
  return chosen->other == BENCH_AS_ROWS ? at->rows : chosen->other == BENCH_AS_COLS ? at->cols : chosen->other;
}

/* ---- models ---- */

/* Sizes from the models' config.json on Hugging Face. Heads as RoPE and attention see them: DeepSeek-V3 rotates 64 of a
 * head's columns, and one k for all heads; its attention has heads of 192 and 128 columns, which no case here has. */
typedef struct model {
  const char *name;
  int64_t hidden, intermediate, vocabulary, heads, kv_heads, head_dim;
  bool latent; /* attention */
} model;

static const model models[] = {
    {"llama-2-7b", 4096, 11008, 32000, 32, 32, 128, false},  {"llama-3-8b", 4096, 14336, 128256, 32, 8, 128, false},
    {"qwen2.5-7b", 3584, 18944, 152064, 28, 4, 128, false},  {"qwen2.5-14b", 5120, 13824, 152064, 40, 8, 128, false},
    {"qwen2.5-72b", 8192, 29568, 152064, 64, 8, 128, false}, {"deepseek-v3", 7168, 18432, 129280, 128, 1, 64, true},
};
enum { MODELS = sizeof models / sizeof *models, TOKENS = 4096 };

const char *const *bench_model_names(void) {
  static const char *names[MODELS + 1];
  for (int i = 0; i < MODELS; ++i) names[i] = models[i].name;
  return names;
}

/* Matrix products take fewer tokens, for time. Every other case has Llama-2 7B's sizes, so that its columns say which of a
 * model's they are. */
bool bench_model_point(const bench_case *chosen, int index, bench_point *point) {
  const model *m = &models[index];
  const char *op = chosen->op;
  *point = (bench_point){.rows = TOKENS, .cols = m->hidden, .model = m->name};
  if (strcmp(op, "rope") == 0 || strcmp(op, "attention") == 0) {
    point->cols = m->heads * m->head_dim;
    point->head_dim = m->head_dim;
    point->kv_heads = m->kv_heads;
    if (*op == 'a') point->rows = 2048;
    return !(*op == 'a' && m->latent);
  }
  if (strcmp(op, "linear") == 0)
    point->rows = 512, point->other = m->intermediate;
  else if (strcmp(op, "fused_linear_cross_entropy") == 0)
    point->rows = 256, point->other = m->vocabulary;
  else if (strcmp(op, "embedding") == 0)
    point->other = m->vocabulary;
  else if (strcmp(op, "adamw") == 0)
    point->rows = m->intermediate;
  else if (chosen->cols == models[0].intermediate)
    point->cols = m->intermediate;
  else if (chosen->cols == models[0].vocabulary)
    point->cols = m->vocabulary;
  return true;
}

/* ---- for the check ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The width is whole: what a kernel does with a row depends on it. */
static void make_small(const bench_case *chosen, bench_point *at) {
  enum { ELEMENTS = 1 << 17, ROWS = 8 };
  const int64_t most = at->cols < ELEMENTS ? ELEMENTS / at->cols : 1;
  at->other = least(bench_other(chosen, at), most);
  at->rows = least(at->rows, least(most, ROWS));
}

bool bench_case_small(int entry, int index, int64_t dims[CHECK_DIMS], int *option) {
  const tigon_entry *wanted = tigon_entry_at(entry);
  const bench_case *chosen = bench_case_find(wanted->op);
  if (!chosen) return false;
  for (bench_mode mode = 0; mode < BENCH_MODES; ++mode) {
    const bool full = mode == BENCH_FULL && chosen->full_in_one;
    if (strcmp(wanted->entry, full ? "fwd" : bench_mode_name(mode)) != 0) continue;
    for (int m = -1; m < MODELS; ++m) {
      bench_point at = {.rows = chosen->rows_f32, .cols = chosen->cols};
      if ((m >= 0 && !bench_model_point(chosen, m, &at)) || index-- > 0) continue;
      make_small(chosen, &at);
      chosen->dims(&at, dims);
      *option = chosen->option[mode];
      return true;
    }
  }
  return false;
}
