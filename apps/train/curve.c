#include "curve.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plot/plot.h"

enum { ROWS = 12, MARGIN = 7 /* columns left of the plot: "12.34 |" */, MOST_COLUMNS = 200 };

static bool reduce(const float *values, int64_t steps, int64_t limit, train_curve_points *points) {
  const int64_t count = steps < limit ? steps : limit;
  *points = (train_curve_points){.count = count};
  points->step = malloc((size_t)(2 * count + 1) * sizeof *points->step);
  if (!points->step) return false;
  points->loss = points->step + count;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = steps * i / count, last = steps * (i + 1) / count;
    double sum = 0;
    for (int64_t s = first; s < last; ++s) sum += (double)values[s];
    points->loss[i] = sum / (double)(last - first);
    points->step[i] = 0.5 * (double)(first + 1 + last);
  }
  return true;
}

bool train_curve_reduce(const train_history *h, int64_t limit, train_curve_points *points) {
  return reduce(h->loss, h->steps, limit, points);
}

bool train_curve_rates(const train_history *h, int64_t limit, train_curve_points *points) {
  int64_t known = 0;
  if (!reduce(h->rate, h->steps, limit, points)) return false;
  for (int64_t i = 0; i < points->count; ++i) {
    if (isnan(points->loss[i])) continue;
    points->step[known] = points->step[i];
    points->loss[known++] = points->loss[i];
  }
  points->count = known;
  return true;
}

void train_curve_range(const train_history *h, const train_curve_points *points, double tick[1], double *low,
                       double *high) {
  double least = INFINITY, most = -INFINITY;
  for (int64_t i = 0; i < points->count; ++i) {
    least = fmin(least, points->loss[i]);
    most = fmax(most, points->loss[i]);
  }
  for (int64_t i = 0; i < h->evals; ++i) {
    least = fmin(least, (double)h->eval_loss[i]);
    most = fmax(most, (double)h->eval_loss[i]);
  }
  if (!(most - least > 1e-6)) most = least + 1e-6;
  *tick = plot_tick(most - least, 5);
  *low = *tick * floor(least / *tick);
  *high = *tick * ceil(most / *tick);
}

/* ---- the terminal ---- */

typedef struct canvas {
  int width;                        /* columns of the plot */
  uint8_t dots[ROWS][MOST_COLUMNS]; /* Braille: 2 x 4 dots a cell */
  bool heldout[ROWS][MOST_COLUMNS];
  double low, high, last; /* loss, loss, step */
} canvas;

/* Position of (step, loss) in dots, 2 a column and 4 a row, from the upper left. */
static void place(const canvas *c, double step, double loss, int *x, int *y) {
  const double right = c->last > 1 ? (step - 1) / (c->last - 1) : 0;
  *x = (int)lround(right * (2 * c->width - 1));
  *y = (int)lround((c->high - loss) / (c->high - c->low) * (4 * ROWS - 1));
  if (*x < 0) *x = 0;
  if (*x > 2 * c->width - 1) *x = 2 * c->width - 1;
  if (*y < 0) *y = 0;
  if (*y > 4 * ROWS - 1) *y = 4 * ROWS - 1;
}

static void dot(canvas *c, int x, int y) {
  static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  c->dots[y / 4][x / 2] |= bits[y % 4][x % 2];
}

/* Dots from one point to the next, so that a steep fall is no gap. */
static void line(canvas *c, int x0, int y0, int x1, int y1) {
  const int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
  for (int i = 0; i <= steps; ++i)
    dot(c, x0 + (steps ? (x1 - x0) * i / steps : 0), y0 + (steps ? (y1 - y0) * i / steps : 0));
}

static void draw(canvas *c, const train_history *h, const train_curve_points *points) {
  int x = 0, y = 0, before_x = 0, before_y = 0;
  for (int64_t i = 0; i < points->count; ++i) {
    place(c, points->step[i], points->loss[i], &x, &y);
    line(c, i ? before_x : x, i ? before_y : y, x, y);
    before_x = x;
    before_y = y;
  }
  for (int64_t i = 0; i < h->evals; ++i) {
    place(c, (double)h->eval_step[i], (double)h->eval_loss[i], &x, &y);
    c->heldout[y / 4][x / 2] = true;
  }
}

static void print_cell(FILE *file, const canvas *c, const train_curve_style *style, int row, int column) {
  const uint8_t dots = c->dots[row][column];
  if (c->heldout[row][column]) {
    fprintf(file, "%s%s%s", style->heldout, style->unicode ? "●" : "o", style->plain);
  } else if (dots == 0) {
    fputc(' ', file);
  } else if (style->unicode) { /* U+2800 + dots */
    fprintf(file, "%s\xe2%c%c%s", style->train, 0xa0 | dots >> 6, 0x80 | (dots & 0x3f), style->plain);
  } else {
    fprintf(file, "%s*%s", style->train, style->plain);
  }
}

static void print_row(FILE *file, const canvas *c, const train_curve_style *style, double tick, int row) {
  const double height = (c->high - c->low) / ROWS, middle = c->high - height * (row + 0.5);
  const double nearest = tick * round(middle / tick);
  const int home = (int)((c->high - nearest) / height + 1e-6); /* the row of that tick, the lowest in the last one */
  if ((home < ROWS ? home : ROWS - 1) == row)
    fprintf(file, "%s%5.*f%s ", style->axis, tick < 0.1 ? 2 : 1, nearest, style->plain);
  else
    fprintf(file, "%6s", "");
  fprintf(file, "%s%s%s", style->axis, style->unicode ? "│" : "|", style->plain);
  int last = c->width - 1;
  while (last >= 0 && c->dots[row][last] == 0 && !c->heldout[row][last]) --last;
  for (int column = 0; column <= last; ++column) print_cell(file, c, style, row, column);
  fputc('\n', file);
}

/* The rate as one row of bars from 0 to its peak; nothing where no rate is known. Returns the peak. */
static double print_rates(FILE *file, const canvas *c, const train_history *h, const train_curve_style *style) {
  static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char *const plain[] = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};
  double peak = 0;
  for (int64_t s = 0; s < h->steps; ++s) peak = fmax(peak, (double)h->rate[s]); /* fmax() leaves NaN out */
  if (peak == 0) return 0;
  fprintf(file, "%s%5s  ", style->axis, "rate");
  for (int column = 0; column < c->width; ++column) {
    const float rate = h->rate[llround((double)column / (c->width - 1) * (double)(h->steps - 1))];
    const int height = isnan(rate) ? 0 : (int)ceil(8 * (double)rate / peak - 1e-9);
    fputs(style->unicode ? bars[height] : plain[height], file);
  }
  fprintf(file, "%s\n", style->plain);
  return peak;
}

void train_curve_print(FILE *file, const train_history *h, const train_curve_style *style) {
  train_curve_points points;
  double tick = 1;
  canvas *c = calloc(1, sizeof *c);
  if (!c) return;
  c->width = style->width - MARGIN < MOST_COLUMNS ? style->width - MARGIN : MOST_COLUMNS;
  if (h->steps < 2 || c->width < 10 || !train_curve_reduce(h, 2 * c->width, &points)) {
    free(c);
    return;
  }
  c->last = (double)h->steps;
  train_curve_range(h, &points, &tick, &c->low, &c->high);
  draw(c, h, &points);
  for (int row = 0; row < ROWS; ++row) print_row(file, c, style, tick, row);
  fprintf(file, "%6s%s%s", "", style->axis, style->unicode ? "└" : "+");
  for (int column = 0; column < c->width; ++column) fputs(style->unicode ? "─" : "-", file);
  char right[32];
  snprintf(right, sizeof right, "%" PRId64, h->steps);
  fprintf(file, "\n%7s%d%*s%s\n", "", 1, c->width - 1, right, style->plain);
  const double peak = print_rates(file, c, h, style);
  fprintf(file, "%7sloss by step: %s%s%s training, %s%s%s held out", "", style->train, style->unicode ? "⠒⠒" : "**",
          style->plain, style->heldout, style->unicode ? "●" : "o", style->plain);
  if (peak > 0) fprintf(file, "; rate: at most %.3g, last %.3g", peak, (double)h->rate[h->steps - 1]);
  fputc('\n', file);
  free(points.step);
  free(c);
}
