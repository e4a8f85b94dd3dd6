/* Which cases are timed: their sizes, and the options of the op's check that they have. */
#include <string.h>

#include "check/cases.h"

/* ---- the dimensions of each op's check ---- */

static void matrix(const bench_point *at, int64_t dims[CHECK_DIMS]) { dims[0] = at->rows, dims[1] = at->cols; }

void bench_words(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  matrix(at, dims);
  dims[2] = at->other;
}

void bench_heads(const bench_point *at, int64_t widest, int64_t dims[3]) {
  const int64_t width = at->head_dim             ? at->head_dim
                        : at->cols % widest == 0 ? widest
                        : at->cols % 64 == 0     ? 64
                                                 : at->cols;
  dims[0] = at->cols / width;
  dims[1] = at->kv_heads ? at->kv_heads : dims[0] % 4 == 0 ? dims[0] / 4 : dims[0];
  dims[2] = width;
}

const bench_case *bench_case_find(const char *op) {
  for (int i = 0; tigon_entry_at(i); ++i)
    if (strcmp(tigon_entry_at(i)->op, op) == 0) return check_op_at(i)->timed;
  return NULL;
}

static const struct form {
  const char *option, *text;
} forms[BENCH_FORMS] = {
#define FORM(name, option, text, help) {option, text},
#include "check/forms.def"
#undef FORM
};
const char *bench_form_option(bench_form form) { return forms[form].option; }
const char *bench_form_text(bench_form form) { return forms[form].text; }

const char *bench_mode_name(bench_mode mode) {
  static const char *const names[BENCH_MODES] = {"fwd", "bwd", "full", "step", "clip", "stats", "merge", "quantised"};
  return names[mode];
}

int64_t bench_other(const bench_case *chosen, const bench_point *at) {
  if (at->other) return at->other;
  return chosen->other == BENCH_AS_ROWS ? at->rows : chosen->other == BENCH_AS_COLS ? at->cols : chosen->other;
}

/* ---- models ---- */

/* DeepSeek-V3 rotates 64 of a head's columns, and one k for all heads; its attention has heads of 192 and 128 columns, which no
 * case here has. */
static const bench_model models[] = {
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

bool bench_model_heads(const bench_model *model, bench_point *point) {
  point->cols = model->heads * model->head_dim;
  point->head_dim = model->head_dim;
  point->kv_heads = model->kv_heads;
  return true;
}

/* Cases have Llama-2 7B's sizes, so that their columns say which of a model's they are. */
bool bench_model_point(const bench_case *chosen, int index, bench_point *point) {
  const bench_model *m = &models[index];
  *point = (bench_point){.rows = TOKENS, .cols = m->hidden, .model = m->name};
  if (chosen->of_model) return chosen->of_model(m, point);
  if (chosen->cols == models[0].intermediate) point->cols = m->intermediate;
  if (chosen->cols == models[0].vocabulary) point->cols = m->vocabulary;
  return true;
}

/* ---- for the check ---- */

void bench_dims(const bench_case *chosen, const bench_point *at, int64_t dims[CHECK_DIMS]) {
  (chosen->dims ? chosen->dims : matrix)(at, dims);
}

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
      bench_dims(chosen, &at, dims);
      *option = chosen->option[mode];
      return true;
    }
  }
  return false;
}
