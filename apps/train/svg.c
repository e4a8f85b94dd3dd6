#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "curve.h"

/* Pixels. The plot lies between the margins. */
enum { WIDTH = 860, HEIGHT = 480, LEFT = 72, RIGHT = 24, TOP = 56, BOTTOM = 60, FEW = 300, MANY = 1500 };

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

static void text(const frame *f, double x, double y, const char *anchor, const char *class, const char *words) {
  fprintf(f->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, class);
  for (; *words; ++words) {
    if (*words == '<')
      fputs("&lt;", f->file);
    else if (*words == '>')
      fputs("&gt;", f->file);
    else if (*words == '&')
      fputs("&amp;", f->file);
    else
      fputc(*words, f->file);
  }
  fputs("</text>\n", f->file);
}

static void rule(const frame *f, double x0, double y0, double x1, double y1, const char *class) {
  fprintf(f->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x0, y0, x1, y1, class);
}

static void axes(const frame *f) {
  char words[32];
  const int ticks = (int)((f->high - f->low) / f->tick + 0.5);
  for (int i = 0; i <= ticks; ++i) {
    const double loss = f->low + i * f->tick;
    rule(f, LEFT, y_of(f, loss), WIDTH - RIGHT, y_of(f, loss), "grid");
    snprintf(words, sizeof words, "%.*f", f->tick < 0.01 ? 3 : f->tick < 0.1 ? 2 : 1, loss);
    text(f, LEFT - 10, y_of(f, loss) + 5, "end", "tick", words);
  }
  double across = train_curve_tick(f->last, 8);
  if (across < 1) across = 1;
  for (int i = 0; i * across <= f->last; ++i) {
    const double at = i ? i * across : 1;
    rule(f, x_of(f, at), HEIGHT - BOTTOM, x_of(f, at), HEIGHT - BOTTOM + 6, "axis");
    snprintf(words, sizeof words, "%.0f", at);
    text(f, x_of(f, at), HEIGHT - BOTTOM + 24, "middle", "tick", words);
  }
  rule(f, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "axis");
  rule(f, LEFT, TOP, LEFT, HEIGHT - BOTTOM, "axis");
  text(f, 0.5 * (LEFT + WIDTH - RIGHT), HEIGHT - 14, "middle", "label", "step");
  fprintf(f->file,
          "<text transform=\"translate(20 %.1f) rotate(-90)\" text-anchor=\"middle\" class=\"label\">loss (nats a "
          "token)</text>\n",
          0.5 * (TOP + HEIGHT - BOTTOM));
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

static void legend(const frame *f, const train_history *h) {
  char words[96];
  const double x = WIDTH - RIGHT - 250;
  rule(f, x, TOP + 16, x + 28, TOP + 16, "train");
  snprintf(words, sizeof words, "training, last %.3f", h->steps ? (double)h->loss[h->steps - 1] : 0.0);
  text(f, x + 38, TOP + 21, "start", "label", words);
  if (h->evals == 0) return;
  rule(f, x, TOP + 40, x + 28, TOP + 40, "heldout");
  fprintf(f->file, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%d\" r=\"4\"/>\n", x + 14, TOP + 40);
  snprintf(words, sizeof words, "held out, last %.3f", (double)h->eval_loss[h->evals - 1]);
  text(f, x + 38, TOP + 45, "start", "label", words);
}

/* A white ground of its own, so that it reads the same on a dark page. */
static void open_document(FILE *file) {
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
          "font-family=\"system-ui, sans-serif\">\n"
          "<style>\n"
          ".tick { font-size: 13px; fill: #444 } .label { font-size: 14px; fill: #222 }\n"
          ".title { font-size: 17px; font-weight: 600; fill: #111 }\n"
          ".grid { stroke: #e3e3e3; stroke-width: 1 } .axis { stroke: #444; stroke-width: 1.2 }\n"
          ".raw { fill: none; stroke: #9cc3e6; stroke-width: 1 }\n"
          ".train { fill: none; stroke: #1f5fa8; stroke-width: 2 }\n"
          ".heldout { fill: none; stroke: #c8501e; stroke-width: 1.6; stroke-dasharray: 5 3 }\n"
          ".mark { fill: #c8501e }\n"
          "</style>\n"
          "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
          WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
}

char *train_curve_svg(const train_history *h, const char *title) {
  train_curve_points fine = {0}, smooth = {0};
  char *document = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&document, &bytes);
  if (!file) return NULL;
  const int64_t few = h->steps / 8 < FEW ? (h->steps / 8 > 20 ? h->steps / 8 : h->steps) : FEW;
  bool good = train_curve_reduce(h, MANY, &fine) && train_curve_reduce(h, few ? few : 1, &smooth);
  if (good && (h->steps > 0 || h->evals > 0)) {
    frame f = {.file = file, .last = (double)h->steps};
    for (int64_t i = 0; i < h->evals; ++i) f.last = fmax(f.last, (double)h->eval_step[i]);
    train_curve_range(h, &fine, &f.tick, &f.low, &f.high);
    open_document(file);
    text(&f, LEFT, 32, "start", "title", title);
    axes(&f);
    curve(&f, fine.step, fine.loss, fine.count, "raw");
    curve(&f, smooth.step, smooth.loss, smooth.count, "train");
    if (h->evals > 0) heldout(&f, h);
    legend(&f, h);
    fputs("</svg>\n", file);
  } else {
    good = false;
  }
  free(fine.step);
  free(smooth.step);
  if (fclose(file) == 0 && good) return document;
  free(document);
  return NULL;
}
