/* The cases that are timed, for `tigon bench` and bench/peers_cpu.py. A timed case is a case of the check. The same run function
 * makes its tensors and arguments, in warm memory without guard zones. Its call is then made as often as wanted. The check runs
 * these cases, too, with fewer rows. */
#ifndef TIGON_CHECK_CASES_H
#define TIGON_CHECK_CASES_H

#include "check/check.h"

typedef enum bench_mode {
  BENCH_FWD,
  BENCH_BWD,
  BENCH_FULL,
  BENCH_STEP,
  BENCH_CLIP,
  BENCH_STATS,
  BENCH_MERGE,
  BENCH_QUANTISED,
  BENCH_MODES
} bench_mode;
const char *bench_mode_name(bench_mode mode);

/* Other forms of a call, which some cases have. A set of them has the bits BENCH_BIT(form). */
typedef enum bench_form {
#define FORM(name, option, text, help) BENCH_##name,
#include "check/forms.def"
#undef FORM
  BENCH_FORMS
} bench_form;
#define BENCH_BIT(form) (1u << (form))
const char *bench_form_option(bench_form form); /* "complex-table" of --complex-table */
const char *bench_form_text(bench_form form);   /* "complex table" */

/* attention's options, of its causal case; 0: none. */
typedef struct bench_attention {
  int64_t window, dilation, sequences; /* sequences: so many lie end to end, alike in length */
  double softcap;
  bool sinks, both_sides, exact; /* both_sides: not causal */
} bench_attention;

/* A size; what rows and cols are is the case's own. */
typedef struct bench_point {
  int64_t rows, cols;
  int64_t other;              /* the third size: N of linear, words; 0 when the op has none */
  int64_t head_dim, kv_heads; /* 0: as the case chooses */
  int64_t experts, choices;   /* the same, of fused_moe */
  int64_t vocab, vocab_begin; /* linear_logprob's shard: classes of all shards, 0: no shard; its first class */
  unsigned forms;             /* forms that the case has */
  bench_attention attention;  /* only for attention */
  int threads;
  const char *model; /* NULL: no model's */
} bench_point;

/* Sizes from a model's config.json on Hugging Face, heads as RoPE and attention see them. */
typedef struct bench_model {
  const char *name;
  int64_t hidden, intermediate, vocabulary, heads, kv_heads, head_dim;
  bool latent; /* attention */
} bench_model;

enum { BENCH_AS_ROWS = -1, BENCH_AS_COLS = -2 }; /* values of bench_case.other */

typedef struct bench_case {
  const char *op;
  const char *shape_note;       /* what ROWSxCOLS is, where that is not plain; NULL elsewhere */
  int64_t rows_f32, rows_16bit; /* default shape: tensors of 64 MiB and more for the ops that memory bounds */
  int64_t cols, other;
  void (*dims)(const bench_point *at, int64_t dims[CHECK_DIMS]); /* dimensions of the op's check; NULL: rows and cols */
  int option[BENCH_MODES];                                       /* options of the op's check */
  /* A model's sizes, where they are not hidden, intermediate or vocabulary for cols that Llama-2 7B has so; false when the
   * model has no such case. NULL: cols alone. */
  bool (*of_model)(const bench_model *model, bench_point *point);
  unsigned forms;                         /* that points may have; the op's check asks check_has_form() */
  bool full_in_one;                       /* full is one call of fwd, not fwd, then bwd */
  double products[BENCH_FULL + 1];        /* matrix products of rows x cols x depth; 0: memory bounds the op */
  double (*depth)(const bench_point *at); /* depth of the products; NULL: other, else rows */
  double again; /* products that backward has more in the form BENCH_RECOMPUTE, and less in BENCH_CACHE */
} bench_case;

/* Dimensions that several ops' checks have: [rows, cols, other], [heads, kv_heads, head_dim]. Heads are a model's;
 * else of `widest` where cols allows, else 64, else one, and a quarter as many of k where that divides. */
void bench_words(const bench_point *at, int64_t dims[CHECK_DIMS]);
void bench_heads(const bench_point *at, int64_t widest, int64_t dims[3]);
bool bench_model_heads(const bench_model *model, bench_point *point); /* of_model of an op with heads */

/* Is the run a timed one in this form? */
static inline bool check_has_form(const check *k, bench_form form) {
  return k->point && k->point->forms & BENCH_BIT(form);
}

/* The case of `op`; NULL when there is none. */
const bench_case *bench_case_find(const char *op);
void bench_dims(const bench_case *chosen, const bench_point *at,
                int64_t dims[CHECK_DIMS]); /* dimensions of the op's check */
/* The third size of a point that has none yet. */
int64_t bench_other(const bench_case *chosen, const bench_point *at);
const char *const *bench_model_names(void); /* NULL-terminated */
/* The index-th model's size; false when it has no such case. */
bool bench_model_point(const bench_case *chosen, int index, bench_point *point);
/* The index-th timed case of an entry with so few rows that the oracle is quick; false past the last one. */
bool bench_case_small(int entry, int index, int64_t dims[CHECK_DIMS], int *option);

/* ---- memory and calls ---- */

typedef struct bench_data {
  const bench_case *chosen;
  check memory; /* what all modes of the case share: tensors of one name and size are one */
  struct bench_mode_data {
    int entry; /* in ops.def; < 0: no such mode */
    void *args;
    double bytes, flops; /* that must move; of matrix products, 0: memory bounds the op */
    bool reads_only;     /* the floor is the read rate */
    size_t workspace_bytes;
  } mode[BENCH_MODES];
  size_t bytes; /* that all tensors have, there or not */
} bench_data;

/* Makes the tensors and arguments of every mode. On an error nothing is left but `bytes`; OUT_OF_MEMORY also when they are
 * more than `most_bytes`, 0 of which makes nothing. */
tigon_status bench_data_open(bench_data *data, const bench_case *chosen, tigon_context *context, tigon_dtype dtype,
                             const bench_point *at, size_t most_bytes);
/* One call of a mode: "full" is forward, then backward, unless one call does both. */
tigon_status bench_call(const bench_data *data, bench_mode mode);
void bench_data_close(bench_data *data);

#endif
