#include "scaler.h"

#include <math.h>
#include <string.h>

train_scaler train_scaler_start(const train_options *o) {
  const bool on = strcmp(o->dtype, "f16") == 0;
  return (train_scaler){.on = on, .scale = on ? o->init_scale : 1};
}

void train_scaler_resume(train_scaler *s, const train_scaler *saved, const train_options *o) {
  s->skipped = saved->skipped;
  if (!s->on || saved->scale == 0 || train_option_given(o, "init-scale")) return;
  s->scale = saved->scale;
  s->good_steps = saved->good_steps;
}

void train_scaler_grow(train_scaler *s, const train_options *o) {
  if (!s->on || ++s->good_steps < o->growth_interval) return;
  s->scale = fmin(s->scale * o->growth_factor, TRAIN_MOST_SCALE);
  s->good_steps = 0;
}

bool train_scaler_back_off(train_scaler *s, const train_options *o) {
  if (s->scale <= 1) return false;
  s->scale = fmax(s->scale * o->backoff_factor, 1);
  s->good_steps = 0;
  ++s->skipped;
  return true;
}
