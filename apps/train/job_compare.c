/* The fused against the unfused run. Each step of both begins from the fused run's weights and moments. So only that step's
 * rounding differs. Runs that are not reset drift apart exponentially, which says nothing about the operators. With --apart they
 * are left to themselves. docs/train.md derives the bounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job.h"

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- the bounds ---- */

/* Half the distance of a number to the next: f32 has 24 bits, bf16 8. */
static double rounding_unit(const train_job *job) {
  return job->fused.model.dtype == TIGON_BF16 ? ldexp(1, -8) : ldexp(1, -24);
}

/* Roundings one after another on the way forward: 13 a layer, 8 around the layers. */
static double forward_roundings(const train_job *job) { return 13.0 * (double)job->options->layers + 8; }

/* Roundings of independent signs add up as their number's root, by more than 6 times that with probability 3e-8. */
enum { CERTAINTY = 6 };

static double loss_bound(const train_job *job, double loss) {
  const double tokens = (double)(job->options->batch * job->options->seq);
  const double stored = 8 * ldexp(1, -24); /* the loss itself is summed and stored in f32 */
  return loss * (stored + CERTAINTY * sqrt(forward_roundings(job) / tokens) * rounding_unit(job));
}

/* Forward, then backward through twice as many; and the weights' gradients are sums over the tokens in f32. */
static double gradient_bound(const train_job *job) {
  const double tokens = (double)(job->options->batch * job->options->seq);
  return CERTAINTY * (sqrt(3 * forward_roundings(job)) * rounding_unit(job) + sqrt(tokens) * ldexp(1, -24));
}

/* ---- a step ---- */

/* The largest of all tensors' differences, each over the largest norm that its gradient has had. The roundings are relative to
 * the terms, whose size changes slowly, while their sum may pass through 0. */
static double gradient_difference(train_job *job) {
  const train_model *model = &job->fused.model;
  double largest = 0;
  for (int64_t i = 0; i < model->tensor_count; ++i) {
    const float *a = (const float *)model->gradient.data + model->tensors[i].offset;
    const float *b = (const float *)job->unfused.model.gradient.data + model->tensors[i].offset;
    double difference = 0, square = 0;
    for (int64_t j = 0; j < model->tensors[i].count; ++j) {
      difference += ((double)a[j] - (double)b[j]) * ((double)a[j] - (double)b[j]);
      square += (double)a[j] * (double)a[j];
    }
    double *norm = &job->gradient_norms[i];
    *norm = fmax(*norm, sqrt(square));
    if (*norm > 0) largest = fmax(largest, sqrt(difference) / *norm);
  }
  return largest;
}

static void copy(train_block *to, const train_block *from) {
  if (from->data) memcpy(to->data, from->data, from->bytes);
}

/* The unfused model becomes the fused one. */
static void join(train_job *job) {
  train_model *to = &job->unfused.model;
  const train_model *from = &job->fused.model;
  copy(&to->master, &from->master);
  copy(&to->image, &from->image);
  copy(&to->exp_avg, &from->exp_avg);
  copy(&to->exp_avg_sq, &from->exp_avg_sq);
}

bool train_job_step_unfused(train_job *job, double loss, double *unfused_loss, train_error *error) {
  train_comparison *c = &job->comparison;
  train_step_result result = {0};
  const double begin = now();
  if (!train_trainer_step(&job->unfused, job->step, 0, &result, error)) return false;
  job->unfused_seconds[job->step - job->first_step] = now() - begin;
  *unfused_loss = result.loss;
  const double difference = fabs(result.loss - loss), gradient = gradient_difference(job);
  c->max_loss_diff = fmax(c->max_loss_diff, difference);
  c->max_gradient_diff = fmax(c->max_gradient_diff, gradient);
  if (job->options->apart) return true;
  const double bound = loss_bound(job, loss);
  if (job->step == job->first_step || bound < c->loss_bound) c->loss_bound = bound;
  if (!(difference <= bound && gradient <= gradient_bound(job))) ++c->steps_outside;
  join(job);
  return true;
}

/* ---- the end ---- */

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The first step is left out where there are others: it touches the memory for the first time. */
static double median(const double *seconds, int64_t count) {
  const int64_t first = count > 1 ? 1 : 0, kept = count - first;
  double *sorted = malloc((size_t)(kept + 1) * sizeof *sorted);
  if (!sorted || kept == 0) {
    free(sorted);
    return 0;
  }
  memcpy(sorted, seconds + first, (size_t)kept * sizeof *sorted);
  qsort(sorted, (size_t)kept, sizeof *sorted, by_size);
  const double middle = 0.5 * (sorted[(kept - 1) / 2] + sorted[kept / 2]);
  free(sorted);
  return middle;
}

void train_job_finish_comparison(train_job *job) {
  train_comparison *c = &job->comparison;
  const double tokens = (double)(job->options->batch * job->options->seq);
  const int64_t count = job->step - job->first_step + 1;
  const double fused = median(job->seconds, count), unfused = median(job->unfused_seconds, count);
  if (job->options->apart)
    c->loss_bound = c->gradient_bound = NAN;
  else
    c->gradient_bound = gradient_bound(job);
  c->speed_ratio = fused > 0 ? unfused / fused : 0;
  c->tokens_per_s = fused > 0 ? tokens / fused : 0;
  c->unfused_tokens_per_s = unfused > 0 ? tokens / unfused : 0;
  c->peak_bytes = job->peak_bytes;
  c->unfused_peak_bytes = (int64_t)job->unfused.memory.peak;
  c->memory_ratio = (double)c->peak_bytes / (double)c->unfused_peak_bytes;
}
