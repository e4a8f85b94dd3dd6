#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "job.h"

enum { SOME_WINDOWS = 64, MANY_WINDOWS = 1024 /* windows of a held-out loss during the run and at its end */ };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* What is summed since the last logged step. */
typedef struct window {
  double seconds;
  int64_t steps;
} window;

static double total(const double *seconds, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += seconds[i];
  return sum;
}

/* ---- steps ---- */

static void tell_begin(train_job *job) {
  if (job->ranks.rank != 0) return;
  job->observer->begin(job->observer->user, &(train_begin){.options = job->options,
                                                           .parameters = job->fused.model.parameters,
                                                           .train_tokens = job->data.train.count,
                                                           .heldout_tokens = job->data.heldout.count,
                                                           .first_step = job->first_step,
                                                           .ranks = job->ranks.count,
                                                           .is_text = job->data.source.is_text,
                                                           .device = tigon_context_device(job->context),
                                                           .gemm = tigon_context_gemm(job->context),
                                                           .out = job->saves ? job->out : NULL});
}

static bool evaluates_at(const train_options *o, int64_t step) {
  return o->eval_every > 0 && step % o->eval_every == 0;
}

static void tell_step(train_job *job, const train_step_result *result, double unfused_loss, window *since) {
  const train_options *o = job->options;
  const int64_t step = job->step, done = step - job->first_step + 1;
  const double spent = total(job->seconds, done) + total(job->unfused_seconds, done);
  const bool logged = step % o->log_every == 0 || step == job->first_step || step == o->steps || result->signal != 0;
  const double rate = (double)(since->steps * o->batch * o->seq) / since->seconds;
  const train_step_report report = {.step = step,
                                    .loss = result->loss,
                                    .lr = result->lr,
                                    .norm = result->norm,
                                    .scaler = &job->fused.scaler,
                                    .unfused_loss = unfused_loss,
                                    .tokens_per_s = rate,
                                    .mfu = train_job_mfu(job, rate),
                                    .peak_bytes = job->peak_bytes,
                                    .seconds = now() - job->began,
                                    .seconds_left = spent / (double)done * (double)(o->steps - step),
                                    .logged = logged};
  if (job->ranks.rank == 0) {
    job->observer->step(job->observer->user, &report);
    if (logged || evaluates_at(o, step)) train_job_measure(job, &report);
  }
  if (logged) *since = (window){0, 0};
}

static void tell_skipped(const train_job *job, const train_step_result *result) {
  const train_scaler *scaler = &job->fused.scaler;
  train_job_note(job,
                 "step %" PRId64 " is skipped: its gradient is not finite with a loss scale of %g, the next one is %g "
                 "(%" PRId64 " skipped so far)",
                 job->step, result->scale, scaler->scale, scaler->skipped);
}

static bool one_step(train_job *job, window *since, train_error *error) {
  train_step_result result = {0};
  double unfused_loss = NAN;
  const double begin = now();
  if (!train_trainer_step(&job->fused, job->step + 1, *job->stop, &result, error)) return false;
  ++job->step;
  job->seconds[job->step - job->first_step] = now() - begin;
  since->seconds += now() - begin;
  ++since->steps;
  job->tokens += job->options->batch * job->options->seq;
  job->signal = result.signal;
  job->peak_bytes = (int64_t)job->fused.memory.peak;
  if (!train_history_add(&job->history, (float)result.loss, (float)result.lr, error) ||
      (job->options->compare && !train_job_step_unfused(job, result.loss, &unfused_loss, error)))
    return false;
  if (result.skipped) tell_skipped(job, &result);
  tell_step(job, &result, unfused_loss, since);
  return true;
}

static bool evaluate(train_job *job, int64_t windows, double *loss, train_error *error) {
  if (!train_trainer_evaluate(&job->fused, windows, loss, error)) return false;
  if (job->history.evals > 0 && job->history.eval_step[job->history.evals - 1] == job->step) --job->history.evals;
  if (job->ranks.rank == 0) train_job_measure_heldout(job, *loss);
  return train_history_add_eval(&job->history, job->step, (float)*loss, error);
}

/* What comes between two steps. A checkpoint that fails is a note: the run goes on and the next one may fit. */
static bool between_steps(train_job *job, train_error *error) {
  const train_options *o = job->options;
  double loss = 0;
  if (evaluates_at(o, job->step)) {
    if (!evaluate(job, SOME_WINDOWS, &loss, error)) return false;
    if (job->ranks.rank == 0) {
      const bool best = o->keep_best && train_job_keep_best(job, loss);
      job->observer->heldout(job->observer->user, job->step, loss, best);
    }
  }
  if (o->checkpoint_every > 0 && job->step % o->checkpoint_every == 0 && job->ranks.rank == 0) {
    train_error failed;
    if (!train_job_save(job, &failed)) {
      if (job->saved_step < 0)
        train_job_note(job, "%s; the run goes on", failed.text);
      else
        train_job_note(job, "%s; the run goes on, the checkpoint of step %" PRId64 " is intact", failed.text,
                       job->saved_step);
    }
  }
  return true;
}

static bool all_steps(train_job *job, train_error *error) {
  window since = {0, 0};
  job->began = now();
  while (job->step < job->options->steps && job->signal == 0) {
    if (!one_step(job, &since, error)) return false;
    if (job->step < job->options->steps && job->signal == 0 && !between_steps(job, error)) return false;
  }
  return true;
}

/* ---- the whole ---- */

static bool finish(train_job *job, train_error *error) {
  const train_options *o = job->options;
  double loss = NAN;
  char *sample = NULL;
  job->peak_bytes = (int64_t)job->fused.memory.peak;
  if (o->keep_best && job->signal == 0 && job->step > 0) { /* by the same windows as those before */
    if (!train_trainer_evaluate(&job->fused, SOME_WINDOWS, &loss, error)) return false;
    if (job->ranks.rank == 0) train_job_keep_best(job, loss);
  }
  if (job->ranks.rank == 0 && !train_job_save_last(job, error)) return false; /* before what takes long */
  loss = NAN;
  if (job->signal == 0 && !evaluate(job, MANY_WINDOWS, &loss, error)) return false;
  if (job->ranks.rank != 0) return true;
  if (!train_job_draw(job, error)) return false;
  if (job->signal == 0 && o->sample > 0 && *job->stop == 0) {
    sample = train_job_sample(job, error);
    if (!sample) return false;
  }
  if (o->compare) train_job_finish_comparison(job);
  const int64_t count = job->step - job->first_step + 1;
  const double seconds = total(job->seconds, count),
               rate = count > 0 ? (double)(count * o->batch * o->seq) / seconds : 0;
  job->observer->end(job->observer->user,
                     &(train_summary){.options = o,
                                      .history = &job->history,
                                      .steps = job->step,
                                      .signal = job->signal,
                                      .scaler = &job->fused.scaler,
                                      .heldout_loss = loss,
                                      .best_step = o->keep_best ? job->best_step : 0,
                                      .best_loss = job->best_loss,
                                      .tokens_per_s = rate,
                                      .mfu = train_job_mfu(job, rate),
                                      .peak_bytes = job->peak_bytes,
                                      .out = job->saves ? job->out : NULL,
                                      .svg = job->svg[0] && job->history.steps > 0 ? job->svg : NULL,
                                      .sample = sample,
                                      .compare = o->compare ? &job->comparison : NULL});
  free(sample);
  if (job->comparison.steps_outside > 0)
    return train_fail(error, TRAIN_EXIT_FAILED,
                      "fused and unfused differ by more than the bound in %" PRId64 " of %" PRId64 " steps",
                      job->comparison.steps_outside, count);
  return true;
}

/* Whether every rank is set up. A rank that failed while rank 0 did not says so itself; else rank 0 speaks for all. */
static bool all_ready(train_job *job, bool ready, train_error *error) {
  double *all = calloc((size_t)job->ranks.count, sizeof *all);
  const double mine = ready;
  train_error failed = {0};
  bool everyone = all ? train_ranks_gather(&job->ranks, &mine, 1, all, &failed)
                      : train_fail(&failed, TRAIN_EXIT_TROUBLE, "no memory for the ranks' states");
  if (everyone && all[0] == 0 && job->ranks.rank != 0) error->text[0] = 0;
  for (int r = 0; everyone && r < job->ranks.count; ++r) everyone = all[r] != 0;
  free(all);
  if (!everyone && ready) {
    failed.exit_code = TRAIN_EXIT_TROUBLE;
    *error = failed;
  }
  return everyone;
}

int train_run(train_options *options, const volatile sig_atomic_t *stop, const train_observer *observer,
              train_error *error) {
  train_job *job = calloc(1, sizeof *job);
  *error = (train_error){0};
  if (!job || !train_ranks_start(&job->ranks, error)) {
    if (!job)
      train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the run");
    else if (job->ranks.rank != 0)
      error->text[0] = 0;
    free(job);
    return error->exit_code;
  }
  job->options = options;
  job->stop = stop;
  job->observer = observer;
  bool good = all_ready(job, train_job_setup(job, error), error);
  const bool set_up = good;
  if (good) tell_begin(job);
  good = good && all_steps(job, error) && finish(job, error);
  int code = good ? (job->signal ? 128 + job->signal : 0) : error->exit_code;
  if (!good && set_up && error->exit_code == TRAIN_EXIT_FAILED) { /* every rank failed alike */
    if (job->ranks.rank != 0) error->text[0] = 0;
    if (job->saved_step >= 0)
      train_job_note(job, "the checkpoint of step %" PRId64 " in %s is kept", job->saved_step, job->out);
  } else if (!good && set_up && job->ranks.count > 1) { /* the others would wait for this rank for ever */
    char sentence[sizeof error->text + 32];
    snprintf(sentence, sizeof sentence, "rank %d: %s", job->ranks.rank, error->text);
    observer->note(observer->user, sentence);
    train_ranks_abort(&job->ranks, code);
  }
  train_job_teardown(job);
  train_ranks_stop(&job->ranks);
  free(job);
  return code;
}
