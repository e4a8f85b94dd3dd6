#include "history.h"

#include <stdlib.h>

static bool no_memory(train_error *error) {
  return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of losses");
}

bool train_history_add(train_history *h, float loss, float rate, train_error *error) {
  if (h->steps == h->capacity) {
    const int64_t capacity = h->capacity ? 2 * h->capacity : 1024;
    float *larger = realloc(h->loss, (size_t)capacity * sizeof *larger);
    if (!larger) return no_memory(error);
    h->loss = larger;
    larger = realloc(h->rate, (size_t)capacity * sizeof *larger);
    if (!larger) return no_memory(error);
    h->rate = larger;
    h->capacity = capacity;
  }
  h->rate[h->steps] = rate;
  h->loss[h->steps++] = loss;
  return true;
}

bool train_history_add_eval(train_history *h, int64_t step, float loss, train_error *error) {
  if (h->evals == h->eval_capacity) {
    const int64_t capacity = h->eval_capacity ? 2 * h->eval_capacity : 64;
    int64_t *steps = realloc(h->eval_step, (size_t)capacity * sizeof *steps);
    if (!steps) return no_memory(error);
    h->eval_step = steps;
    float *losses = realloc(h->eval_loss, (size_t)capacity * sizeof *losses);
    if (!losses) return no_memory(error);
    h->eval_loss = losses;
    h->eval_capacity = capacity;
  }
  h->eval_step[h->evals] = step;
  h->eval_loss[h->evals++] = loss;
  return true;
}

void train_history_free(train_history *h) {
  free(h->loss);
  free(h->rate);
  free(h->eval_step);
  free(h->eval_loss);
  *h = (train_history){0};
}
