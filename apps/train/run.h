/* A run from options to the end: setup, steps, held-out losses, checkpoints, the curve, a sample. It prints nothing: what
 * happens is told to an observer, on rank 0 only. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <signal.h>

#include "history.h"
#include "model.h"
#include "options.h"
#include "scaler.h"

typedef struct train_begin {
  const train_options *options;
  int64_t parameters, train_tokens, heldout_tokens;
  int64_t first_step; /* the first that will be done */
  int ranks;
  bool is_text;
  const char *device, *gemm;
  const char *out; /* NULL: nothing is saved */
} train_begin;

typedef struct train_step_report {
  int64_t step;
  double loss, lr, norm;      /* the norm is not finite where f16 skipped the step */
  const train_scaler *scaler; /* after the step */
  double unfused_loss;        /* with --compare */
  double tokens_per_s;        /* since the last report that was logged */
  double mfu;          /* the same: part of the device's rate that the model's arithmetic takes; NaN: not known */
  int64_t peak_bytes;  /* counted memory, see memory.h */
  double seconds;      /* since the first step of this process began */
  double seconds_left; /* to the end of the steps, as it went so far */
  bool logged;         /* one of every --log-every, the first and the last */
} train_step_report;

typedef struct train_comparison {
  double max_loss_diff;     /* over the steps */
  double loss_bound;        /* docs/train.md derives it; the smallest of the steps. NaN with --apart */
  double max_gradient_diff; /* norm of a tensor's difference over its largest norm so far; the largest of all */
  double gradient_bound;
  int64_t steps_outside;                     /* steps with a difference above its bound */
  double speed_ratio;                        /* tokens/s, fused over unfused, by the median step of both */
  double memory_ratio;                       /* peak bytes, fused over unfused */
  double tokens_per_s, unfused_tokens_per_s; /* by the median step */
  int64_t peak_bytes, unfused_peak_bytes;
} train_comparison;

typedef struct train_summary {
  const train_options *options;
  const train_history *history;
  int64_t steps; /* done, those before a resume included */
  const train_scaler *scaler;
  int signal;          /* that stopped the run; 0: it is complete */
  double heldout_loss; /* NaN when stopped */
  int64_t best_step;   /* --keep-best: the step of out/best and its held-out loss; 0: none */
  double best_loss;
  double tokens_per_s; /* over the steps of this process, without evaluations and saves */
  double mfu;          /* the same; NaN: the device's rate is not known */
  int64_t peak_bytes;
  const char *out, *svg;           /* NULL: not written */
  const char *sample;              /* UTF-8, safe to show; NULL: none */
  const train_comparison *compare; /* NULL: none */
} train_summary;

typedef struct train_observer {
  void *user;
  void (*note)(void *user, const char *sentence);
  void (*begin)(void *user, const train_begin *begin);
  void (*step)(void *user, const train_step_report *report);
  void (*heldout)(void *user, int64_t step, double loss, bool best); /* best: now in out/best */
  void (*end)(void *user, const train_summary *summary);
} train_observer;

/* Runs. *stop becomes the number of a signal when the run shall save and end after the step that is going on. Returns the
 * exit code: 0; 128 + signal; else the error's, whose sentence is empty on the ranks that shall stay silent. */
int train_run(train_options *options, const volatile sig_atomic_t *stop, const train_observer *observer,
              train_error *error);

#endif
