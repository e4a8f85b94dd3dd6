#include <math.h>

#include "job.h"

/* Floating-point operations that the model itself needs for a token, forward and backward. A weight that is multiplied takes 6;
 * a head takes 12 head_dim for each token of the sequence (Chowdhery et al. 2022, arXiv:2204.02311, appendix B). */
static double operations(const train_job *job) {
  const train_config *c = &job->fused.model.config;
  const int64_t table = c->tied ? 0 : c->vocab * c->hidden; /* is only looked up */
  return 6.0 * (double)(job->fused.model.parameters - table) +
         12.0 * (double)(c->layers * c->heads * c->head_dim * job->options->seq);
}

double train_job_mfu(const train_job *job, double tokens_per_s) {
  const train_options *o = job->options;
  const double known = tigon_context_tflops(job->context, tigon_dtype_from_name(o->dtype));
  const double rate = 1e12 * (o->peak_tflops > 0 ? o->peak_tflops : known) * job->ranks.count;
  return rate > 0 ? tokens_per_s * operations(job) / rate : NAN;
}

bool train_job_open_metrics(train_job *job, train_error *error) {
  const char *from = job->resumed ? job->options->resume : NULL;
  if (!train_metrics_open(&job->metrics, job->out, from, &job->history, error)) return false;
  if (job->metrics.last.seconds > 0) job->seconds_before = job->metrics.last.seconds;
  return true;
}

static void put(train_job *job, const train_metrics_row *row) {
  train_error failed;
  if (train_metrics_put(&job->metrics, row, &failed) || job->metrics_failed) return;
  train_job_note(job, "%s; the run goes on without this row", failed.text);
  job->metrics_failed = true;
}

void train_job_measure(train_job *job, const train_step_report *r) {
  if (!job->saves) return;
  put(job,
      &(train_metrics_row){.step = (double)r->step,
                           .tokens = (double)job->tokens,
                           .loss = (double)(float)r->loss, /* the history's, by which a resumed run knows its rows */
                           .heldout_loss = NAN,
                           .lr = r->lr,
                           .gradient_norm = r->norm,
                           .tokens_per_s = r->tokens_per_s,
                           .seconds = job->seconds_before + r->seconds,
                           .peak_bytes = (double)r->peak_bytes,
                           .mfu = r->mfu,
                           .loss_scale = r->scaler->on ? r->scaler->scale : NAN,
                           .skipped_steps = r->scaler->on ? (double)r->scaler->skipped : NAN});
}

void train_job_measure_heldout(train_job *job, double loss) {
  train_metrics_row row = job->metrics.last;
  if (!job->saves || row.step != (double)job->step) return;
  row.heldout_loss = (double)(float)loss;
  put(job, &row);
}
