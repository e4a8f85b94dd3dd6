/* The learning rate of a step: a linear warm-up, then one of four schedules. docs/train.md has the formulas. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stdint.h>

#include "options.h"

typedef enum train_schedule_kind {
  TRAIN_COSINE,   /* half a cosine to the floor */
  TRAIN_LINEAR,   /* a straight line to the floor */
  TRAIN_CONSTANT, /* the peak */
  TRAIN_WSD,      /* warm-up, stable, decay: the peak, then a straight line to the floor over the last steps */
} train_schedule_kind;

typedef struct train_schedule {
  int64_t steps, warmup;
  double lr;    /* the peak */
  double floor; /* part of the peak that the schedule ends at */
  train_schedule_kind kind;
  int64_t decay; /* TRAIN_WSD: steps of the decay */
} train_schedule;

/* The options must be resolved. */
train_schedule train_schedule_of(const train_options *options);

/* Steps that a WSD schedule decays over: --decay-fraction of --steps, rounded. */
int64_t train_decay_steps(const train_options *options);

/* The learning rate of step 1..steps. */
double train_learning_rate(const train_schedule *schedule, int64_t step);

#endif
