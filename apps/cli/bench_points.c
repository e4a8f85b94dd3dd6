/* The sizes that an operator is timed at: its own, those of models, or a sweep. */
#include <string.h>

#include "bench.h"

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
 * model's they are. False: the model has no such case. */
static bool model_point(const bench_case *chosen, const model *m, bench_point *point) {
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

static int64_t scaled(int64_t size, int doublings) { return doublings < 0 ? size >> -doublings : size << doublings; }

int bench_points(const bench_case *chosen, const bench_choice *choice, tigon_dtype dtype,
                 bench_point points[BENCH_MOST_POINTS]) {
  bench_point base = {.rows = choice->rows, .cols = choice->cols, .threads = choice->threads};
  int count = 0;
  if (!base.rows)
    base.rows = tigon_dtype_size(dtype) == 2 ? chosen->rows_16bit : chosen->rows_f32, base.cols = chosen->cols;
  switch (choice->axis) {
    case BENCH_ONE: points[count++] = base; break;
    case BENCH_MODELS:
      for (int i = 0; i < MODELS; ++i)
        if ((!choice->model || strcmp(choice->model, models[i].name) == 0) &&
            model_point(chosen, &models[i], &points[count]))
          points[count++].threads = base.threads;
      break;
    case BENCH_THREADS:
      for (int threads = 1; threads < 2 * base.threads && count < BENCH_MOST_POINTS; threads *= 2) {
        points[count] = base;
        points[count++].threads = threads < base.threads ? threads : base.threads;
      }
      break;
    case BENCH_ROWS:
    case BENCH_WIDTH: /* an eighth to fourfold, and a 32nd to twofold */
      for (int k = choice->axis == BENCH_ROWS ? -5 : -3, last = choice->axis == BENCH_ROWS ? 1 : 2; k <= last; ++k) {
        points[count] = base;
        int64_t *size = choice->axis == BENCH_ROWS ? &points[count].rows : &points[count].cols;
        *size = scaled(*size, k);
        if (*size > 0) ++count;
      }
      break;
  }
  for (int i = 0; i < count; ++i)
    if (points[i].other == 0)
      points[i].other = chosen->other == BENCH_AS_ROWS   ? points[i].rows
                        : chosen->other == BENCH_AS_COLS ? points[i].cols
                                                         : chosen->other;
  return count;
}
