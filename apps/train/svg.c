#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "curve.h"
#include "plot/plot.h"

/* Pixels. The plot lies between the margins. */
enum { WIDTH = 860, HEIGHT = 480, LEFT = 72, RIGHT = 76, TOP = 56, BOTTOM = 60, FEW = 300, MANY = 1500 };

typedef struct frame {
  FILE *file;
  double low, high, tick, last; /* loss, loss, loss, step */
} frame;

static double x_of(const frame *f, double step) {
  return LEFT + (WIDTH - LEFT - RIGHT) * (f->last > 1 ? (step - 1) / (f->last - 1) : 0.5);
}

static double y_of(const frame *f, double loss) {
  return TOP + (HEIGHT - TOP - BOTTOM) * (f->high - loss) / (f->high - f->low);
}

static void axes(const frame *f) {
  char words[32];
  const int ticks = (int)((f->high - f->low) / f->tick + 0.5);
  for (int i = 0; i <= ticks; ++i) {
    const double loss = f->low + i * f->tick;
    plot_rule(f->file, LEFT, y_of(f, loss), WIDTH - RIGHT, y_of(f, loss), "grid");
    snprintf(words, sizeof words, "%.*f", f->tick < 0.01 ? 3 : f->tick < 0.1 ? 2 : 1, loss);
    plot_text(f->file, LEFT - 10, y_of(f, loss) + 5, "end", "tick", words);
  }
  double across = plot_tick(f->last, 8);
  if (across < 1) across = 1;
  for (int i = 0; i * across <= f->last; ++i) {
    const double at = i ? i * across : 1;
    plot_rule(f->file, x_of(f, at), HEIGHT - BOTTOM, x_of(f, at), HEIGHT - BOTTOM + 6, "axis");
    snprintf(words, sizeof words, "%.0f", at);
    plot_text(f->file, x_of(f, at), HEIGHT - BOTTOM + 24, "middle", "tick", words);
  }
  plot_rule(f->file, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "axis");
  plot_rule(f->file, LEFT, TOP, LEFT, HEIGHT - BOTTOM, "axis");
  plot_text(f->file, 0.5 * (LEFT + WIDTH - RIGHT), HEIGHT - 14, "middle", "label", "step");
  plot_turned(f->file, 20, 0.5 * (TOP + HEIGHT - BOTTOM), -90, "middle", "label", "loss (nats a token)");
}

static void curve(const frame *f, const double *step, const double *loss, int64_t count, const char *class) {
  fprintf(f->file, "<polyline class=\"%s\" points=\"", class);
  for (int64_t i = 0; i < count; ++i) {
    const double y = loss[i] > f->high ? f->high : loss[i] < f->low ? f->low : loss[i];
    fprintf(f->file, "%s%.1f,%.1f", i ? " " : "", x_of(f, step[i]), y_of(f, y));
  }
  fputs("\"/>\n", f->file);
}

static void heldout(const frame *f, const train_history *h) {
  fputs("<polyline class=\"heldout\" points=\"", f->file);
  for (int64_t i = 0; i < h->evals; ++i)
    fprintf(f->file, "%s%.1f,%.1f", i ? " " : "", x_of(f, (double)h->eval_step[i]), y_of(f, (double)h->eval_loss[i]));
  fputs("\"/>\n", f->file);
  for (int64_t i = 0; i < h->evals; ++i)
    fprintf(f->file, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x_of(f, (double)h->eval_step[i]),
            y_of(f, (double)h->eval_loss[i]));
}

/* Against an axis of its own on the right, whose peak stays below the legend. */
static void rates(const frame *f, const train_curve_points *rate) {
  char words[32];
  double peak = 0;
  for (int64_t i = 0; i < rate->count; ++i) peak = fmax(peak, rate->loss[i]);
  if (peak == 0) return;
  const frame own = {.file = f->file, .low = 0, .high = peak / 0.75, .last = f->last};
  const double tick = plot_tick(peak, 4);
  for (int i = 0; i * tick <= peak * (1 + 1e-6); ++i) {
    const double y = y_of(&own, i * tick);
    plot_rule(f->file, WIDTH - RIGHT, y, WIDTH - RIGHT + 6, y, "axis");
    snprintf(words, sizeof words, "%.3g", i * tick);
    plot_text(f->file, WIDTH - RIGHT + 10, y + 5, "start", "tick", words);
  }
  curve(&own, rate->step, rate->loss, rate->count, "rate");
}

static void legend(const frame *f, const train_history *h) {
  char words[96];
  const double x = WIDTH - RIGHT - 250;
  plot_rule(f->file, x, TOP + 16, x + 28, TOP + 16, "train");
  snprintf(words, sizeof words, "training, last %.3f", h->steps ? (double)h->loss[h->steps - 1] : 0.0);
  plot_text(f->file, x + 38, TOP + 21, "start", "label", words);
  if (h->steps > 0 && !isnan(h->rate[h->steps - 1])) {
    const double y = TOP + (h->evals > 0 ? 64 : 40);
    plot_rule(f->file, x, y, x + 28, y, "rate");
    snprintf(words, sizeof words, "learning rate, last %.3g", (double)h->rate[h->steps - 1]);
    plot_text(f->file, x + 38, y + 5, "start", "label", words);
  }
  if (h->evals == 0) return;
  plot_rule(f->file, x, TOP + 40, x + 28, TOP + 40, "heldout");
  fprintf(f->file, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%d\" r=\"4\"/>\n", x + 14, TOP + 40);
  snprintf(words, sizeof words, "held out, last %.3f", (double)h->eval_loss[h->evals - 1]);
  plot_text(f->file, x + 38, TOP + 45, "start", "label", words);
}

char *train_curve_svg(const train_history *h, const char *title) {
  train_curve_points fine = {0}, smooth = {0}, rate = {0};
  char *document = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&document, &bytes);
  if (!file) return NULL;
  const int64_t few = h->steps / 8 < FEW ? (h->steps / 8 > 20 ? h->steps / 8 : h->steps) : FEW;
  bool good = train_curve_reduce(h, MANY, &fine) && train_curve_reduce(h, few ? few : 1, &smooth) &&
              train_curve_rates(h, MANY, &rate);
  if (good && (h->steps > 0 || h->evals > 0)) {
    frame f = {.file = file, .last = (double)h->steps};
    for (int64_t i = 0; i < h->evals; ++i) f.last = fmax(f.last, (double)h->eval_step[i]);
    train_curve_range(h, &fine, &f.tick, &f.low, &f.high);
    plot_open(file, WIDTH, HEIGHT,
              ".raw { fill: none; stroke: #9cc3e6; stroke-width: 1 }\n"
              ".train { fill: none; stroke: #1f5fa8; stroke-width: 2 }\n"
              ".heldout { fill: none; stroke: #c8501e; stroke-width: 1.6; stroke-dasharray: 5 3 }\n"
              ".rate { fill: none; stroke: #8a8f98; stroke-width: 1.4 }\n"
              ".mark { fill: #c8501e }\n");
    plot_text(file, LEFT, 32, "start", "title", title);
    axes(&f);
    rates(&f, &rate);
    curve(&f, fine.step, fine.loss, fine.count, "raw");
    curve(&f, smooth.step, smooth.loss, smooth.count, "train");
    if (h->evals > 0) heldout(&f, h);
    legend(&f, h);
    plot_close(file);
  } else {
    good = false;
  }
  free(fine.step);
  free(smooth.step);
  free(rate.step);
  good = good && !ferror(file);
  if (fclose(file) == 0 && good) return document;
  free(document);
  return NULL;
}
