#include "trainer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "schedule.h"

static train_config shape(const train_options *o, int64_t vocab) {
  return (train_config){.vocab = vocab,
                        .hidden = o->hidden,
                        .layers = o->layers,
                        .heads = o->heads,
                        .kv_heads = o->kv_heads,
                        .intermediate = o->intermediate,
                        .head_dim = o->hidden / o->heads,
                        .positions = o->seq,
                        .rope_theta = o->rope_theta,
                        .rms_eps = o->rms_eps,
                        .rope = o->rope_scaling,
                        .tied = o->tie};
}

bool train_trainer_create(tigon_context *context, const train_options *o, const train_data *data,
                          const train_ranks *ranks, bool fused, size_t base, train_trainer *t, train_error *error) {
  *t = (train_trainer){
      .memory = {context, base, base}, .scaler = train_scaler_start(o), .ranks = ranks, .options = o, .data = data};
  const train_config config = shape(o, data->vocab);
  const int64_t micro = o->batch / (ranks->count * o->accumulate);
  const size_t batch = (size_t)(2 * micro * o->seq) * sizeof(int32_t);
  const tigon_dtype dtype = tigon_dtype_from_name(o->dtype);
  train_memory *memory = &t->memory;
  const bool made =
      train_model_create(memory, &config, dtype, &t->model, error) &&
      train_optimiser_create(&t->model, o->beta1, o->beta2, o->weight_decay, o->clip, &t->optimiser, error) &&
      train_pass_create(memory, &t->model, micro, o->seq, fused, (int)o->threads, &t->pass, error) &&
      train_host_alloc(memory, batch, "a batch", &t->batch, error) &&
      train_host_alloc(memory, (size_t)ranks->count * 2 * sizeof(double), "the ranks' losses", &t->rank_sums, error);
  if (!made) train_trainer_destroy(t);
  return made;
}

void train_trainer_destroy(train_trainer *t) {
  train_host_free(&t->memory, &t->stage);
  train_host_free(&t->memory, &t->rank_sums);
  train_host_free(&t->memory, &t->batch);
  if (t->pass.layers) train_pass_destroy(&t->memory, &t->pass);
  train_optimiser_destroy(&t->optimiser);
  train_model_destroy(&t->model);
}

/* The sum over this rank's tokens; its gradients are in the model. */
static bool gradients(train_trainer *t, int64_t step, double *sum, train_error *error) {
  const train_options *o = t->options;
  const int64_t micro = t->pass.batch;
  int32_t *tokens = t->batch.data, *labels = tokens + micro * o->seq;
  const double scale = t->scaler.scale / (double)(o->batch * o->seq);
  *sum = 0;
  for (int64_t a = 0; a < o->accumulate; ++a) {
    const int64_t first = (t->ranks->rank * o->accumulate + a) * micro;
    double part = 0;
    if (!train_data_batch(t->data, o->seed, step, o->batch, o->seq, first, micro, tokens, labels, error) ||
        !train_pass_gradient(&t->pass, tokens, labels, scale, a > 0, &part, error))
      return false;
    *sum += part;
  }
  return true;
}

/* Adds up {sum, signal} over the ranks in their order; the signals' largest. */
static bool agree(train_trainer *t, double sum, int signal, double *total, int *largest, train_error *error) {
  const double mine[2] = {sum, signal};
  const double *all = t->rank_sums.data;
  if (!train_ranks_gather(t->ranks, mine, 2, t->rank_sums.data, error)) return false;
  *total = 0;
  *largest = 0;
  for (int r = 0; r < t->ranks->count; ++r) {
    *total += all[2 * r];
    if (all[2 * r + 1] > *largest) *largest = (int)all[2 * r + 1];
  }
  return true;
}

/* The update and, in f16, the next loss scale. A skipped step counts as a step, not as an update. */
static bool update(train_trainer *t, int64_t step, train_step_result *result, train_error *error) {
  train_scaler *scaler = &t->scaler;
  result->scale = scaler->scale;
  if (!train_optimiser_step(&t->optimiser, step - scaler->skipped, result->lr, scaler->scale, &result->norm, error))
    return false;
  result->skipped = !isfinite(result->norm);
  if (!result->skipped)
    train_scaler_grow(scaler, t->options);
  else if (!train_scaler_back_off(scaler, t->options))
    return train_fail(error, TRAIN_EXIT_FAILED,
                      "the gradient of step %" PRId64 " is not a number%s: a smaller --lr or a longer --warmup helps",
                      step, scaler->on ? ", with a loss scale of 1" : "");
  return true;
}

bool train_trainer_step(train_trainer *t, int64_t step, int signal, train_step_result *result, train_error *error) {
  const train_options *o = t->options;
  const train_schedule schedule = train_schedule_of(o);
  double sum = 0, total = 0;
  result->lr = train_learning_rate(&schedule, step);
  if (!gradients(t, step, &sum, error) || !agree(t, sum, signal, &total, &result->signal, error)) return false;
  result->loss = total / (double)(o->batch * o->seq);
  if (!isfinite(result->loss))
    return train_fail(error, TRAIN_EXIT_FAILED,
                      "the loss of step %" PRId64 " is not a number: a smaller --lr or a longer --warmup helps", step);
  return train_ranks_sum(t->ranks, &t->memory, t->model.gradient.data, t->model.elements, &t->stage, error) &&
         update(t, step, result, error);
}

/* `rows` windows from the i-th of `count` that are spread over `total`, the rest of the batch without labels. */
static bool read_windows(train_trainer *t, int64_t i, int64_t rows, int64_t count, int64_t total, train_error *error) {
  const int64_t micro = t->pass.batch, seq = t->options->seq;
  int32_t *tokens = t->batch.data, *labels = tokens + micro * seq;
  memset(tokens, 0, (size_t)(micro * seq) * sizeof *tokens);
  for (int64_t n = 0; n < micro * seq; ++n) labels[n] = TRAIN_NO_LABEL;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t window = (i + r) * total / count;
    if (!train_data_window(t->data, seq, window, tokens + r * seq, labels + r * seq, error)) return false;
  }
  return true;
}

bool train_trainer_evaluate(train_trainer *t, int64_t windows, double *loss, train_error *error) {
  const int64_t total = train_data_windows(t->data, t->options->seq), micro = t->pass.batch;
  const int64_t count = windows < total ? windows : total;
  const int64_t first = count * t->ranks->rank / t->ranks->count;
  const int64_t last = count * (t->ranks->rank + 1) / t->ranks->count;
  const int32_t *tokens = t->batch.data;
  double sum = 0, all = 0;
  int signal = 0;
  for (int64_t i = first; i < last; i += micro) {
    const int64_t rows = last - i < micro ? last - i : micro;
    double part = 0;
    if (!read_windows(t, i, rows, count, total, error) ||
        !train_pass_loss(&t->pass, tokens, tokens + micro * t->options->seq, &part, error))
      return false;
    sum += part;
  }
  if (!agree(t, sum, 0, &all, &signal, error)) return false;
  *loss = all / (double)(count * t->options->seq);
  return true;
}
