/* The state of a run, shared by run.c (the flow) and job_*.c (its parts). */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "checkpoint.h"
#include "metrics.h"
#include "run.h"
#include "trainer.h"

typedef struct train_job {
  train_options *options;
  const volatile sig_atomic_t *stop;
  const train_observer *observer;
  train_ranks ranks;
  tigon_context *context;
  train_checkpoint checkpoint; /* open where the weights are of one */
  bool resumed, loads;         /* goes on from it; takes its weights */
  train_memory data_memory;
  train_tokenizer *tokenizer; /* NULL: the data are tokens whose text is not known */
  train_data data;
  char data_path[TRAIN_PATH], heldout_path[TRAIN_PATH], init_path[TRAIN_PATH]; /* absolute, for the checkpoint */
  char tokenizer_path[TRAIN_PATH];
  train_trainer fused, unfused; /* the second with --compare */
  train_history history;
  double *seconds, *unfused_seconds; /* times of each step of this process, for the medians */
  double *gradient_norms;            /* --compare: each tensor's largest so far */
  int64_t first_step, step;          /* the first of this process; the last that is done */
  int64_t saved_step;                /* the last that is in `out`; -1: none */
  int64_t tokens;                    /* that the steps had so far */
  train_metrics metrics;             /* open while the run saves, on rank 0 */
  double began;                      /* the first step, on the monotonic clock */
  double seconds_before;             /* in the metrics, of the processes before a resume */
  bool metrics_failed;               /* a row could not be written, which is said once */
  int64_t peak_bytes;                /* peak of the fused trainer, without the sample */
  train_comparison comparison;       /* --compare, gathered step by step */
  int signal;
  int64_t best_step; /* with the lowest held-out loss, which is in out/best; 0: none */
  double best_loss;
  bool best_changed; /* since the last save to `out`, which knows the best */
  bool best_is_old;  /* out/best is another run's, until the first save to `out` */
  bool saves;
  char out[TRAIN_PATH], svg[TRAIN_PATH];
} train_job;

/* ---- job_setup.c ---- */
bool train_job_setup(train_job *job, train_error *error);
void train_job_teardown(train_job *job);

/* ---- job_output.c, rank 0 ---- */
/* Chooses and makes `out`, and makes sure that a checkpoint fits in. */
bool train_job_choose_out(train_job *job, train_error *error);
bool train_job_save(train_job *job, train_error *error);
/* --keep-best: saves to out/best and returns true where the held-out loss is the lowest so far. A failure is a note. */
bool train_job_keep_best(train_job *job, double loss);
/* Saves at the end; when that fails, somewhere else, which the error then names. */
bool train_job_save_last(train_job *job, train_error *error);
bool train_job_draw(train_job *job, train_error *error);
/* Text in memory of malloc(), NULL with the sentence. */
char *train_job_sample(train_job *job, train_error *error);

/* ---- job_metrics.c, rank 0; nothing happens where the run does not save ---- */
bool train_job_open_metrics(train_job *job, train_error *error);
/* A step's row. A disk that is full is a note. */
void train_job_measure(train_job *job, const train_step_report *report);
/* The part of the device's rate that the model's arithmetic takes; NaN: the rate is not known. */
double train_job_mfu(const train_job *job, double tokens_per_s);
/* Adds the held-out loss to the last step's row. */
void train_job_measure_heldout(train_job *job, double loss);

/* ---- job_compare.c, with --compare ---- */
/* The unfused trainer's turn at the step that the fused one has just done with `loss`. */
bool train_job_step_unfused(train_job *job, double loss, double *unfused_loss, train_error *error);
/* What was gathered, and the ratios of time and memory. */
void train_job_finish_comparison(train_job *job);

/* A sentence to the observer. */
__attribute__((format(printf, 2, 3))) void train_job_note(const train_job *job, const char *format, ...);

#endif
