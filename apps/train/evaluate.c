#include "evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "decoder.h"

enum { ROWS = 256 /* tokens that pass the layers together */ };

/* Tokens [first, last) as inputs; of what follows them, tokens [counted, last] are counted. */
static bool window(train_decoder *d, const train_tokens *t, int64_t first, int64_t last, int64_t counted, double *sum,
                   train_error *error) {
  int32_t labels[ROWS];
  for (int64_t at = first; at < last; at += d->rows) {
    const int64_t count = last - at < d->rows ? last - at : d->rows;
    double part = 0;
    for (int64_t i = 0; i < count; ++i) labels[i] = at + i + 1 < counted ? TRAIN_NO_LABEL : t->tokens[at + i + 1];
    if (!train_decoder_feed(d, t->tokens + at, count, at - first, error)) return false;
    if (at + count >= counted && !train_decoder_loss(d, labels, &part, error)) return false;
    *sum += part;
  }
  return true;
}

bool train_evaluate(train_reader *reader, const train_tokens *t, void (*progress)(int64_t done, int64_t total),
                    train_evaluation *e, train_error *error) {
  const int64_t inputs = t->count - 1, context = e->context < inputs ? e->context : inputs;
  train_decoder decoder;
  double sum = 0;
  bool good =
      train_decoder_create(&reader->memory, &reader->model, context, context < ROWS ? context : ROWS, &decoder, error);
  if (!good) return false;
  e->tokens = inputs;
  e->windows = 1 + (inputs - context + e->stride - 1) / e->stride;
  int64_t counted = 1;
  for (int64_t w = 0; good && w < e->windows; ++w) {
    const int64_t first = w * e->stride, last = first + context < inputs ? first + context : inputs;
    if (progress) progress(w, e->windows);
    good = window(&decoder, t, first, last, counted, &sum, error);
    counted = last + 1;
  }
  if (progress) progress(e->windows, e->windows);
  e->loss = sum / (double)inputs;
  if (good && !isfinite(e->loss)) good = train_fail(error, TRAIN_EXIT_FAILED, "the loss is not a number");
  train_decoder_destroy(&reader->memory, &decoder);
  return good;
}
