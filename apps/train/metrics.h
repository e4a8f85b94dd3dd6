/* A run's numbers for other programs: metrics.jsonl and metrics.csv, a row for each step that is printed or evaluated.
 *
 * A row is one write() of a whole line, so it is there when the step is, and a killed process leaves no half of it. Opening
 * keeps the rows of the steps that a resumed run has behind it, and cuts the others. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "file.h"
#include "history.h"

/* NaN is null in JSON and empty in CSV. */
typedef struct train_metrics_row {
  double step, tokens; /* done so far, by the whole run */
  double loss, heldout_loss, lr;
  double gradient_norm; /* before clipping */
  double tokens_per_s;  /* since the last step that was printed */
  double seconds;       /* since the run began; those of the processes before a resume included */
  double peak_bytes;
  double mfu;                       /* part of the device's rate that the model's arithmetic takes */
  double loss_scale, skipped_steps; /* f16 */
} train_metrics_row;

typedef struct train_metrics_file {
  int descriptor; /* -1: closed */
  char path[TRAIN_PATH];
  int64_t begin, end; /* where the last row begins and ends, in bytes */
} train_metrics_file;

typedef struct train_metrics {
  train_metrics_file jsonl, csv;
  train_metrics_row last; /* step 0: there is none */
} train_metrics;

/* Opens both in `folder`, with the rows of `from`/metrics.jsonl (NULL: none) whose step and loss are in the history. */
bool train_metrics_open(train_metrics *metrics, const char *folder, const char *from, const train_history *history,
                        train_error *error);

/* Adds a row or, where it is of the last row's step, replaces that one. */
bool train_metrics_put(train_metrics *metrics, const train_metrics_row *row, train_error *error);

void train_metrics_close(train_metrics *metrics);

#endif
