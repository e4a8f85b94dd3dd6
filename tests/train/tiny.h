/* A tiny model and a batch for it, which the trainer's tests share. */
#ifndef TINY_H
#define TINY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"
#include "pass.h"
#include "random.h"

enum { TINY_BATCH = 2, TINY_SEQ = 8, TINY_TOKENS = TINY_BATCH * TINY_SEQ };

typedef struct tiny {
  tigon_context *context;
  train_memory memory;
  train_model model;
  train_pass pass;
  int32_t tokens[TINY_TOKENS], labels[TINY_TOKENS];
  train_error error;
} tiny;

static inline train_config tiny_config(bool tied) {
  return (train_config){.vocab = 19,
                        .hidden = 16,
                        .layers = 2,
                        .heads = 4,
                        .kv_heads = 2,
                        .intermediate = 24,
                        .head_dim = 4,
                        .positions = TINY_SEQ,
                        .rope_theta = 10000,
                        .rms_eps = 1e-5,
                        .tied = tied};
}

/* Says why, when a call of the trainer failed. */
static inline void tiny_good(bool good, const train_error *error) {
  if (!good) fail_msg("%s", error->text);
}

static inline void tiny_open(tiny *t, tigon_dtype dtype, bool tied, bool fused) {
  const train_config config = tiny_config(tied);
  memset(t, 0, sizeof *t);
  if (tigon_context_create(&(tigon_context_desc){.device = "cpu"}, &t->context) != TIGON_OK)
    fail_msg("%s", tigon_last_error(NULL));
  t->memory.context = t->context;
  tiny_good(train_model_create(&t->memory, &config, dtype, &t->model, &t->error), &t->error);
  tiny_good(train_model_start(&t->model, 7, &t->error), &t->error);
  tiny_good(train_pass_create(&t->memory, &t->model, TINY_BATCH, TINY_SEQ, fused, 0, &t->pass, &t->error), &t->error);
  for (int i = 0; i < TINY_TOKENS; ++i) {
    t->tokens[i] = (int32_t)(train_random(3, 0, (uint64_t)i) % 19);
    t->labels[i] = (int32_t)(train_random(4, 0, (uint64_t)i) % 19);
  }
}

/* Larger weights than a run starts from, so that every gradient is well above rounding. */
static inline void tiny_scatter(tiny *t) {
  float *master = t->model.master.data;
  for (int64_t i = 0; i < t->model.tensor_count; ++i) {
    const train_tensor *tensor = &t->model.tensors[i];
    for (int64_t j = 0; j < tensor->count; ++j) {
      const double normal = train_normal(11, (uint64_t)i, (uint64_t)j);
      master[tensor->offset + j] = (float)(tensor->rows ? 0.3 * normal : 1 + 0.2 * normal);
    }
  }
  tiny_good(train_model_round(&t->model, &t->error), &t->error);
}

static inline double tiny_gradient(tiny *t, double scale, bool accumulate) {
  double loss = 0;
  tiny_good(train_pass_gradient(&t->pass, t->tokens, t->labels, scale, accumulate, &loss, &t->error), &t->error);
  return loss;
}

static inline void tiny_close(tiny *t) {
  train_pass_destroy(&t->memory, &t->pass);
  train_model_destroy(&t->model);
  assert_int_equal(t->memory.now, 0);
  tigon_context_destroy(t->context);
}

#endif
