/* What a run can be told: one table drives the command line, its help and its mistakes, and what a checkpoint keeps. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "model.h"

typedef struct train_options {
  /* data */
  const char *data, *heldout, *token_bits, *tokenizer;
  int64_t vocab; /* 0: from the data */
  /* model */
  int64_t layers, hidden, heads, kv_heads, intermediate, seq; /* kv_heads, intermediate 0: chosen by resolve */
  double rope_theta, rms_eps;
  train_rope_scaling rope_scaling; /* no option: a checkpoint's */
  bool tie;
  /* training */
  int64_t steps, batch, accumulate, warmup, seed; /* warmup -1: chosen by resolve */
  double lr, lr_floor, weight_decay, beta1, beta2, clip;
  double decay_fraction;
  const char *schedule, *dtype;
  double init_scale, growth_factor, backoff_factor; /* f16 */
  int64_t growth_interval;
  /* output */
  const char *out, *resume, *init_from, *config, *svg, *prompt;
  int64_t checkpoint_every, eval_every, log_every, sample, top_k;
  double temperature, peak_tflops; /* peak_tflops 0: not known */
  bool overwrite, keep_best, compare, apart, json, quiet;
  /* device */
  const char *device, *variant;
  int64_t threads;

  uint64_t given; /* bit i: row i of the table was set by the user */
} train_options;

typedef enum train_option_kind {
  TRAIN_WHOLE,  /* int64_t in [low, high] */
  TRAIN_REAL,   /* double in [low, high] */
  TRAIN_TEXT,   /* const char *, not copied */
  TRAIN_CHOICE, /* const char *, one of `choices` */
  TRAIN_FLAG,   /* bool */
} train_option_kind;

typedef enum train_option_use {
  TRAIN_USE_HERE,  /* this process only: where it reads and writes, and how it talks */
  TRAIN_USE_RUN,   /* kept in run.json */
  TRAIN_USE_SAVED, /* and in the checkpoint; a resumed run may change it */
  TRAIN_USE_MODEL, /* and in the checkpoint; a resumed run must not change it */
} train_option_use;

typedef struct train_option_row {
  const char *name; /* without the dashes */
  train_option_kind kind;
  train_option_use use;
  size_t offset; /* in train_options */
  double low, high;
  const char *value;   /* the default, as text; NULL: zero or NULL */
  const char *choices; /* separated by blanks */
  const char *what;    /* the value's name in the help: "N"; NULL for a flag. Begins a group when `help` is NULL */
  const char *help;
} train_option_row;

/* The table; a row whose help is NULL only titles a group (`what`). */
extern const train_option_row train_option_rows[];
extern const int train_option_count;

/* All defaults. */
void train_options_init(train_options *options);

/* Sets row `index` from text, which must outlive the options. `origin` begins the sentence of a mistake: "--". */
bool train_option_set(train_options *options, int index, const char *text, const char *origin, train_error *error);

/* The sentence for a value, shown as it is, that the row cannot have; always returns false. */
bool train_option_refuse(int index, const char *origin, const char *shown, train_error *error);

/* The row's value as text that train_option_set() reads back to the same value. */
void train_option_text(const train_options *options, int index, char *text, size_t bytes);

int train_option_find(const char *name); /* -1: no such row */
bool train_option_given(const train_options *options, const char *name);

/* Fills what is chosen from other values and checks everything that needs no data. */
bool train_options_resolve(train_options *options, int ranks, train_error *error);

#endif
