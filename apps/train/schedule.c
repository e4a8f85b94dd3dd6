#include "schedule.h"

#include <math.h>
#include <string.h>

int64_t train_decay_steps(const train_options *o) { return llround(o->decay_fraction * (double)o->steps); }

train_schedule train_schedule_of(const train_options *o) {
  static const char *const names[] = {"cosine", "linear", "constant", "wsd"};
  train_schedule s = {
      .steps = o->steps, .warmup = o->warmup, .lr = o->lr, .floor = o->lr_floor, .decay = train_decay_steps(o)};
  while (strcmp(o->schedule, names[s.kind]) != 0) ++s.kind;
  return s;
}

/* Part of the way from the peak to the floor. The first step behind the warm-up has 0, the last step 1. */
static double fallen(const train_schedule *s, int64_t step) {
  const int64_t span = s->steps - s->warmup;
  const double done = span > 1 ? (double)(step - s->warmup - 1) / (double)(span - 1) : 0;
  return done < 1 ? done : 1;
}

double train_learning_rate(const train_schedule *s, int64_t step) {
  if (step <= s->warmup) return s->lr * (double)step / (double)s->warmup;
  double height = 1; /* above the floor: 1 at the peak */
  switch (s->kind) {
    case TRAIN_COSINE: height = 0.5 * (1 + cos(3.141592653589793 * fallen(s, step))); break;
    case TRAIN_LINEAR: height = 1 - fallen(s, step); break;
    case TRAIN_CONSTANT: return s->lr;
    case TRAIN_WSD:
      if (step <= s->steps - s->decay) return s->lr;
      height = (double)(s->steps - step) / (double)s->decay;
      break;
  }
  return s->lr * (s->floor + (1 - s->floor) * height);
}
