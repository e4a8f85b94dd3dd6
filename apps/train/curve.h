/* The loss curve: on a terminal and as SVG. Loss in nats a token over steps, the training loss and the held-out one,
 * and the learning rate. */
#ifndef TRAIN_CURVE_H
#define TRAIN_CURVE_H

#include <stdio.h>

#include "history.h"

/* Escape sequences around the marks; all "" without colour. */
typedef struct train_curve_style {
  const char *train, *heldout, *axis, *plain;
  int width;    /* columns */
  bool unicode; /* Braille dots, else ASCII */
} train_curve_style;

/* 17 lines, one less where no rate is known; nothing for fewer than two steps. */
void train_curve_print(FILE *file, const train_history *history, const train_curve_style *style);

/* An SVG document in memory of malloc(), NULL when memory ran out. */
char *train_curve_svg(const train_history *history, const char *title);

/* What both draw. `train` are `count` points of the smoothed training loss at steps x[], `count` <= limit. */
typedef struct train_curve_points {
  double *step, *loss;
  int64_t count;
} train_curve_points;

/* Means of the training loss over equal runs of steps; the caller frees step (one block for both). */
bool train_curve_reduce(const train_history *history, int64_t limit, train_curve_points *points);
/* The same for the learning rate, in `loss`, without the steps whose rate is not known. */
bool train_curve_rates(const train_history *history, int64_t limit, train_curve_points *points);

/* The lowest and highest loss of the points and of the held-out losses, rounded outwards to ticks. */
void train_curve_range(const train_history *history, const train_curve_points *points, double tick[1], double *low,
                       double *high);

#endif
