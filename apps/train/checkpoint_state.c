/* What a checkpoint says of a run's state besides its step, as metadata of optimizer.safetensors. Older checkpoints
 * lack some of it. */
#include <float.h>
#include <inttypes.h>
#include <stdlib.h>

#include "checkpoint.h"

void train_state_write(const train_state *s, json_t *metadata) {
  json_object_set_new(metadata, "tokens", json_sprintf("%" PRId64, s->tokens));
  if (s->best_step > 0) {
    json_object_set_new(metadata, "best_step", json_sprintf("%" PRId64, s->best_step));
    json_object_set_new(metadata, "best_loss", json_sprintf("%.17g", s->best_loss));
  }
  if (s->scaler.on) {
    json_object_set_new(metadata, "loss_scale", json_sprintf("%.17g", s->scaler.scale));
    json_object_set_new(metadata, "good_steps", json_sprintf("%" PRId64, s->scaler.good_steps));
  }
  if (s->scaler.skipped > 0)
    json_object_set_new(metadata, "skipped_steps", json_sprintf("%" PRId64, s->scaler.skipped));
}

static bool read_whole(const train_safetensors *file, const char *key, int64_t high, int64_t *value,
                       train_error *error) {
  char *end = NULL;
  const char *text = train_safetensors_metadata(file, key);
  if (!text) return true;
  *value = strtoll(text, &end, 10);
  if (end != text && !*end && *value >= 0 && *value <= high) return true;
  return train_fail(error, TRAIN_EXIT_TROUBLE,
                    "%s is no usable checkpoint: its %s is no whole number from 0 to %" PRId64, file->path, key, high);
}

static bool read_real(const train_safetensors *file, const char *key, double low, double high, double *value,
                      train_error *error) {
  char *end = NULL;
  const char *text = train_safetensors_metadata(file, key);
  if (!text) return true;
  *value = strtod(text, &end);
  if (end != text && !*end && *value >= low && *value <= high) return true;
  return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable checkpoint: its %s is no number from %g to %g",
                    file->path, key, low, high);
}

bool train_state_read(const train_safetensors *file, int64_t step, train_state *s, train_error *error) {
  s->tokens = -1;
  return read_whole(file, "tokens", INT64_C(1) << 53, &s->tokens, error) &&
         read_whole(file, "best_step", step, &s->best_step, error) &&
         read_real(file, "best_loss", 0, DBL_MAX, &s->best_loss, error) &&
         read_real(file, "loss_scale", 1, TRAIN_MOST_SCALE, &s->scaler.scale, error) &&
         read_whole(file, "good_steps", step, &s->scaler.good_steps, error) &&
         read_whole(file, "skipped_steps", step, &s->scaler.skipped, error);
}
