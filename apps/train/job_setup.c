#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

void train_job_note(const train_job *job, const char *format, ...) {
  char sentence[1200];
  va_list list;
  if (job->ranks.rank != 0 || !job->observer->note) return;
  va_start(list, format);
  vsnprintf(sentence, sizeof sentence, format, list);
  va_end(list);
  job->observer->note(job->observer->user, sentence);
}

static bool open_context(train_job *job, train_error *error) {
  const train_options *o = job->options;
  const tigon_context_desc desc = {.device = o->device, .variant = o->variant, .threads = (int)o->threads};
  const tigon_status status = tigon_context_create(&desc, &job->context);
  if (status == TIGON_ERROR_INVALID) return train_fail(error, TRAIN_EXIT_USAGE, "%s", tigon_last_error(NULL));
  if (!train_ok(NULL, status, error)) return false;
  const char *device = tigon_context_device(job->context);
  if (o->compare && strcmp(device, "cpu") != 0 && strcmp(device, "ref") != 0)
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--compare runs its unfused operators on the host, so --device must be cpu or ref, is %s",
                      o->device);
  return true;
}

/* The option's path made absolute, so that a run resumed from elsewhere finds it. */
static void make_absolute(const char **path, char buffer[TRAIN_PATH]) {
  char *absolute = *path ? realpath(*path, NULL) : NULL;
  if (absolute && strlen(absolute) < TRAIN_PATH) {
    strcpy(buffer, absolute);
    *path = buffer;
  }
  free(absolute);
}

/* The option becomes the file that was read, for run.json. A link stays one: its neighbour is tokenizer_config.json. */
static bool name_tokenizer(train_job *job, train_error *error) {
  char folder[TRAIN_PATH];
  const char *path = train_tokenizer_path(job->tokenizer), *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
  char *absolute = realpath(folder, NULL);
  const bool good = !absolute || train_path_join(absolute, slash ? slash + 1 : path, job->tokenizer_path, error);
  job->options->tokenizer = absolute ? job->tokenizer_path : path;
  free(absolute);
  return good;
}

/* The given one, else that of the folder with the first weights, where it can be read. */
static bool open_tokenizer(train_job *job, train_error *error) {
  const train_options *o = job->options;
  const char *folder = job->resumed ? o->resume : o->init_from;
  const bool kept = !o->tokenizer && job->loads && train_tokenizer_exists(folder);
  train_tokens prompt = {0};
  if (!o->tokenizer && !kept) return true;
  job->tokenizer = train_tokenizer_open(kept ? folder : o->tokenizer, error);
  if (!job->tokenizer && kept) {
    train_job_note(job, "%s; the run goes on without a tokenizer", error->text);
    *error = (train_error){0};
    return true;
  }
  const bool good = job->tokenizer && (!o->prompt || train_tokenizer_encode(job->tokenizer, (const uint8_t *)o->prompt,
                                                                            strlen(o->prompt), true, &prompt, error));
  free(prompt.tokens);
  return good && name_tokenizer(job, error);
}

static bool open_data(train_job *job, train_error *error) {
  job->data_memory.context = job->context;
  make_absolute(&job->options->data, job->data_path);
  make_absolute(&job->options->heldout, job->heldout_path);
  make_absolute(&job->options->init_from, job->init_path);
  if (!open_tokenizer(job, error) ||
      !train_data_open(&job->data_memory, job->options, job->tokenizer, &job->data, error))
    return false;
  if (job->data.source.is_text) job->tokenizer = train_tokenizer_bytes(error);
  if (job->data.source.is_text && !job->tokenizer) return false;
  job->options->vocab = job->data.vocab; /* as found, for the checkpoint */
  if (job->data.source.note[0]) train_job_note(job, "%s", job->data.source.note);
  if (job->options->prompt && !job->tokenizer)
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--prompt is text, but the data are tokens whose text is not known: give --tokenizer");
  if (job->loads && !job->resumed)
    train_job_note(job, "the weights are those of %s, at step 0 with zero moments", job->options->init_from);
  else if (job->checkpoint.weights_only)
    train_job_note(job, "%s has no optimizer.safetensors: its weights begin at step 0, with zero moments",
                   job->options->resume);
  else if (job->resumed && job->data.digest != job->checkpoint.digest)
    train_job_note(job, "the data are not those that the checkpoint was trained on");
  return true;
}

static bool start_weights(train_job *job, train_model *model, train_error *error) {
  if (!job->loads) return train_model_start(model, (uint64_t)job->options->seed, error);
  return train_checkpoint_load(&job->checkpoint, model, &job->history, error);
}

static void resume_state(train_job *job) {
  const train_state *state = &job->checkpoint.state;
  job->tokens = state->tokens >= 0 ? state->tokens : job->step * job->options->batch * job->options->seq;
  job->best_step = state->best_step;
  job->best_loss = state->best_loss;
  train_scaler_resume(&job->fused.scaler, &state->scaler, job->options);
}

static bool make_trainers(train_job *job, train_error *error) {
  const train_options *o = job->options;
  const size_t base = job->data_memory.now;
  if (!train_trainer_create(job->context, o, &job->data, &job->ranks, true, base, &job->fused, error) ||
      !start_weights(job, &job->fused.model, error))
    return false;
  if (job->resumed && !job->checkpoint.weights_only) resume_state(job);
  if (!o->compare) return true;
  return train_trainer_create(job->context, o, &job->data, &job->ranks, false, base, &job->unfused, error) &&
         start_weights(job, &job->unfused.model, error);
}

bool train_job_setup(train_job *job, train_error *error) {
  train_options *o = job->options;
  job->saved_step = -1;
  job->metrics.jsonl.descriptor = job->metrics.csv.descriptor = -1;
  job->checkpoint = (train_checkpoint){.optimizer.file = -1};
  if (o->resume && o->compare)
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--compare starts two runs from the same first weights, so it cannot be used with --resume");
  if (o->resume && train_option_given(o, "init-from"))
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--resume goes on with a run and --init-from begins one, so only one of them can be given");
  if (o->init_from && !o->resume) {
    if (o->out && train_folder_same(o->init_from, o->out))
      return train_fail(error, TRAIN_EXIT_USAGE, "--out is the folder of --init-from, which stays as it is");
    if (!train_checkpoint_open_weights(o->init_from, &job->checkpoint, o, error)) return false;
    job->loads = true;
  }
  if (o->resume) {
    if (!train_checkpoint_open(o->resume, &job->checkpoint, o, error)) return false;
    job->resumed = job->loads = true;
    job->step = job->checkpoint.step;
    if (o->steps < job->step)
      return train_fail(error, TRAIN_EXIT_USAGE, "--steps is %lld, must be at least %lld, the checkpoint's step",
                        (long long)o->steps, (long long)job->step);
  }
  if (!train_options_resolve(o, job->ranks.count, error) || !open_context(job, error) || !open_data(job, error) ||
      !make_trainers(job, error))
    return false;
  job->first_step = job->step + 1;
  job->seconds = calloc((size_t)(o->steps - job->step) + 1, sizeof *job->seconds);
  job->unfused_seconds = calloc((size_t)(o->steps - job->step) + 1, sizeof *job->unfused_seconds);
  job->gradient_norms = calloc((size_t)job->fused.model.tensor_count, sizeof *job->gradient_norms);
  if (!job->seconds || !job->unfused_seconds || !job->gradient_norms)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the times of %lld steps", (long long)o->steps);
  return job->ranks.rank != 0 || train_job_choose_out(job, error);
}

void train_job_teardown(train_job *job) {
  if (job->context) {
    train_trainer_destroy(&job->fused);
    train_trainer_destroy(&job->unfused);
    train_data_close(&job->data_memory, &job->data);
    tigon_context_destroy(job->context);
  }
  train_tokenizer_close(job->tokenizer);
  train_checkpoint_close(&job->checkpoint);
  train_metrics_close(&job->metrics);
  train_history_free(&job->history);
  free(job->seconds);
  free(job->unfused_seconds);
  free(job->gradient_norms);
}
