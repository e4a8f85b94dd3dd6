#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "curve.h"
#include "job.h"
#include "run_json.h"
#include "sample.h"
#include "utf8.h"

/* ---- where ---- */

/* Whether a run's folder holds a checkpoint, or only that of its best step. */
static bool holds_checkpoint(const char *out) {
  char best[TRAIN_PATH];
  train_error none;
  return train_checkpoint_exists(out) || (train_path_join(out, "best", best, &none) && train_checkpoint_exists(best));
}

/* The first of tigon-run, tigon-run-2, ... that holds no checkpoint. */
static void free_name(char out[TRAIN_PATH]) {
  strcpy(out, "tigon-run");
  for (int i = 2; holds_checkpoint(out) && i < 1000000; ++i) snprintf(out, TRAIN_PATH, "tigon-run-%d", i);
}

/* What a resumed run knows of the best only holds where it is. */
static bool find_best(train_job *job, bool in_place, train_error *error) {
  char best[TRAIN_PATH];
  if (job->best_step == 0) return true;
  if (!train_path_join(job->options->resume, "best", best, error)) return false;
  if (!train_checkpoint_exists(best))
    job->best_step = 0;
  else if (!in_place && job->options->keep_best)
    train_job_note(job, "the best so far, of step %" PRId64 " with a held-out loss of %.4f, stays in %s",
                   job->best_step, job->best_loss, best);
  return true;
}

/* What is in out/best of a run that is replaced. Weights that this run begins with stay where they are. */
static bool find_old_best(train_job *job, train_error *error) {
  const train_options *o = job->options;
  const char *from = o->resume ? o->resume : o->init_from;
  char best[TRAIN_PATH];
  if (!train_path_join(job->out, "best", best, error)) return false;
  job->best_is_old = train_checkpoint_exists(best) && !(from && train_folder_same(from, best));
  return true;
}

bool train_job_choose_out(train_job *job, train_error *error) {
  const train_options *o = job->options;
  const char *chosen = o->out || job->checkpoint.weights_only ? o->out : o->resume; /* another's model stays as it is */
  job->saves = chosen || !o->compare;
  if (job->saves) {
    const char *lacks;
    if (!chosen)
      free_name(job->out);
    else if ((size_t)snprintf(job->out, sizeof job->out, "%s", chosen) >= sizeof job->out)
      return train_fail(error, TRAIN_EXIT_USAGE, "--out is longer than %d bytes", TRAIN_PATH - 1);
    const bool in_place = o->resume && train_folder_same(o->resume, job->out);
    if (holds_checkpoint(job->out) && !in_place && !o->overwrite)
      return train_fail(error, TRAIN_EXIT_USAGE,
                        "--out %s holds a checkpoint already: go on from it with --resume, or replace it with "
                        "--overwrite",
                        job->out);
    if (in_place) job->saved_step = job->step;
    if (!in_place && !find_old_best(job, error)) return false;
    if (!find_best(job, in_place, error)) return false;
    if (!train_folder_create(job->out, error) ||
        !train_folder_reserve(job->out, (o->keep_best ? 2 : 1) * train_checkpoint_bytes(&job->fused.model, o->steps),
                              error) ||
        !train_run_json_write(job->out, o, &lacks, error) || !train_job_open_metrics(job, error))
      return false;
    if (lacks) train_job_note(job, "run.json lacks --%s, which is no UTF-8 text", lacks);
  }
  if (o->keep_best && !job->saves)
    return train_fail(error, TRAIN_EXIT_USAGE, "--keep-best is given, but --compare saves nothing without --out");
  if (o->svg)
    snprintf(job->svg, sizeof job->svg, "%s", o->svg);
  else if (job->saves && !train_path_join(job->out, "loss.svg", job->svg, error))
    return false;
  return true;
}

/* ---- saving ---- */

static bool save_to(train_job *job, const char *folder, train_error *error) {
  const train_progress progress = {.step = job->step,
                                   .digest = job->data.digest,
                                   .options = job->options,
                                   .history = &job->history,
                                   .state = {.scaler = job->fused.scaler,
                                             .best_step = job->best_step,
                                             .best_loss = job->best_loss,
                                             .tokens = job->tokens}};
  if (job->tokenizer && !train_tokenizer_save(job->tokenizer, folder, error)) return false;
  if (job->data.source.is_text && !job->resumed) train_tokenizer_remove(folder);
  return train_checkpoint_save(folder, &job->fused.model, &progress, error);
}

bool train_job_save(train_job *job, train_error *error) {
  char best[TRAIN_PATH];
  if (!job->saves || (job->saved_step == job->step && !job->best_changed)) return true;
  if (!save_to(job, job->out, error)) return false;
  if (job->best_is_old && train_path_join(job->out, "best", best, error)) train_checkpoint_remove(best);
  job->best_is_old = false;
  job->saved_step = job->step;
  job->best_changed = false;
  return true;
}

bool train_job_keep_best(train_job *job, double loss) {
  char best[TRAIN_PATH];
  train_error failed;
  const int64_t step_before = job->best_step;
  const double loss_before = job->best_loss;
  if (!isfinite(loss) || (step_before > 0 && loss >= loss_before)) return false;
  job->best_step = job->step; /* the checkpoint itself says so too */
  job->best_loss = loss;
  if (train_path_join(job->out, "best", best, &failed) && train_folder_create(best, &failed) &&
      save_to(job, best, &failed)) {
    job->best_changed = true;
    job->best_is_old = false;
    return true;
  }
  job->best_step = step_before;
  job->best_loss = loss_before;
  train_job_note(job, "%s; the run goes on", failed.text);
  return false;
}

bool train_job_save_last(train_job *job, train_error *error) {
  char why[sizeof error->text], folder[TRAIN_PATH];
  train_error other;
  if (train_job_save(job, error)) return true;
  snprintf(why, sizeof why, "%.700s", error->text);
  const char *temporary = getenv("TMPDIR") && *getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  snprintf(folder, sizeof folder, "%.3900s/tigon-rescue-%ld", temporary, (long)getpid());
  if (train_folder_create(folder, &other) && save_to(job, folder, &other))
    return train_fail(error, error->exit_code, "%.700s; step %" PRId64 " is saved in %.200s instead", why, job->step,
                      folder);
  rmdir(folder);
  if (job->saved_step < 0)
    return train_fail(error, error->exit_code, "%.700s; step %" PRId64 " could not be saved", why, job->step);
  return train_fail(error, error->exit_code, "%.700s; the checkpoint of step %" PRId64 " in %.200s is intact", why,
                    job->saved_step, job->out);
}

bool train_job_draw(train_job *job, train_error *error) {
  char title[160];
  if (!job->svg[0] || job->history.steps == 0) return true;
  const train_options *o = job->options;
  snprintf(title, sizeof title, "Llama, %.2f M parameters, %s, batch %" PRId64 " x %" PRId64 " tokens",
           1e-6 * (double)job->fused.model.parameters, o->dtype, o->batch, o->seq);
  char *document = train_curve_svg(&job->history, title);
  if (!document) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the loss curve");
  const bool good = train_file_replace(job->svg, document, strlen(document), error);
  free(document);
  return good;
}

/* ---- text ---- */

enum { LONGEST_PROMPT = 24 /* tokens of the held-out data */ };

/* --prompt, else the beginning of the held-out part or, of text as bytes, of its second line, up to a blank. */
static bool make_prompt(const train_job *job, train_tokens *prompt, train_error *error) {
  enum { LOOK = 2000 };
  const train_part *part = &job->data.heldout;
  const char *given = job->options->prompt;
  const bool is_text = job->data.source.is_text;
  int32_t look[LOOK];
  int64_t count = part->count < LOOK ? part->count : LOOK, first = 0;
  if (given && *given)
    return train_tokenizer_encode(job->tokenizer, (const uint8_t *)given, strlen(given), true, prompt, error);
  if (!train_source_read(part->source, part->first, count, look, error)) return false;
  for (int64_t i = 0; is_text && i + LONGEST_PROMPT < count && first == 0; ++i)
    if (look[i] == '\n') first = i + 1;
  count = count - first < LONGEST_PROMPT ? count - first : LONGEST_PROMPT;
  for (int64_t i = count - 1; is_text && i > 4; --i) {
    if (look[first + i] != ' ') continue;
    count = i;
    break;
  }
  for (int64_t i = 0; i < count; ++i)
    if (!train_tokens_add(prompt, look[first + i], error)) return false;
  return true;
}

/* Tokens as text or, without a tokenizer, as numbers. In memory of malloc(), NULL when that ran out. */
static char *show(const train_job *job, const int32_t *tokens, int64_t count) {
  size_t used = 0, room = 0, size = 0;
  for (int64_t i = 0; i < count; ++i, room += size)
    if (job->tokenizer) train_tokenizer_text(job->tokenizer, tokens[i], &size);
  char *text = malloc(job->tokenizer ? 3 * room + 1 : 12 * (size_t)count + 1);
  uint8_t *bytes = malloc(room + 1);
  for (int64_t i = 0; text && bytes && i < count; ++i) {
    if (!job->tokenizer) {
      used += (size_t)sprintf(text + used, "%s%" PRId32, i ? " " : "", tokens[i]);
      continue;
    }
    const uint8_t *spelling = train_tokenizer_text(job->tokenizer, tokens[i], &size);
    if (size > 0) memcpy(bytes + used, spelling, size);
    used += size;
  }
  if (text && bytes && job->tokenizer) train_utf8_show(bytes, used, text);
  free(bytes);
  return text;
}

char *train_job_sample(train_job *job, train_error *error) {
  const train_options *o = job->options;
  const train_sampling how = {o->temperature, o->top_k, 0, (uint64_t)o->seed};
  train_tokens tokens = {0};
  char *text = NULL;
  bool good = make_prompt(job, &tokens, error);
  const int64_t count = tokens.count;
  for (int64_t i = 0; good && i < o->sample; ++i) good = train_tokens_add(&tokens, 0, error);
  if (good && train_sample(&job->fused.memory, &job->fused.model, &how, tokens.tokens, count, o->sample,
                           tokens.tokens + count, error)) {
    text = show(job, tokens.tokens, count + o->sample);
    if (!text) train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the sample");
  }
  free(tokens.tokens);
  return text;
}
