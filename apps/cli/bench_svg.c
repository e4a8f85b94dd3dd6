/* Plots of what `tigon bench` found: lines over a sweep, marks where the order means nothing, a bar from q20 to q80. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "plot/plot.h"

/* Pixels: the plot of a panel lies between the margins, the legend in the right one. */
enum { WIDTH = 860, HEIGHT = 400, HEAD = 64, LEFT = 78, RIGHT = 150, TOP = 40, BOTTOM = 56, TILTED = 78 };
enum { MOST_CATEGORIES = 64, SERIES = BENCH_MODES * (TIGON_BF16 + 1), NAME = 48 };

typedef enum unit { GBPS, GFLOPS, MICROSECONDS, UNITS } unit;

/* One panel: rows of one unit, of one operator in a sweep. */
typedef struct panel {
  FILE *file;
  const bench_result *result;
  const char *op; /* NULL: all */
  unit unit;
  int first_y; /* its upper edge */
  char category[MOST_CATEGORIES][NAME];
  int categories;
  bool used[SERIES], has[MOST_CATEGORIES][SERIES];
  double high, tick;
  bool tilted; /* names below the axis */
} panel;

static unit unit_of(const bench_result *result, const bench_row *row) {
  return result->overhead ? MICROSECONDS : row->flops > 0 ? GFLOPS : GBPS;
}

static bool shown(const panel *p, const bench_row *row) {
  return row->outcome == BENCH_MEASURED && unit_of(p->result, row) == p->unit &&
         (!p->op || strcmp(row->op, p->op) == 0);
}

static double value_of(const panel *p, const bench_row *row, double seconds) {
  return p->unit == MICROSECONDS ? seconds * 1e6 : (p->unit == GFLOPS ? row->flops : row->bytes_min) / seconds * 1e-9;
}

static int series_of(const bench_row *row) {
  bench_mode mode = 0;
  while (strcmp(bench_mode_name(mode), row->mode) != 0) ++mode;
  return (int)row->dtype * BENCH_MODES + (int)mode;
}

static int64_t swept(const bench_result *result, const bench_row *row) {
  return result->axis == BENCH_ROWS ? row->at.rows : result->axis == BENCH_WIDTH ? row->at.cols : row->at.threads;
}

static void category_of(const panel *p, const bench_row *row, char name[NAME]) {
  if (p->result->axis == BENCH_ONE)
    snprintf(name, NAME, "%s", row->op);
  else if (p->result->axis == BENCH_MODELS)
    snprintf(name, NAME, "%s", row->at.model);
  else
    snprintf(name, NAME, "%" PRId64, swept(p->result, row));
}

static int category_index(const panel *p, const bench_row *row) {
  char name[NAME];
  category_of(p, row, name);
  int i = 0;
  while (i < p->categories && strcmp(p->category[i], name) != 0) ++i;
  return i;
}

static int by_number(const void *a, const void *b) {
  const long long x = atoll(a), y = atoll(b);
  return (x > y) - (x < y);
}

/* Categories in the order in which they came, or by number; the scale; false when the panel is empty. */
static bool collect(panel *p) {
  size_t longest = 0;
  for (int i = 0; i < p->result->count; ++i) {
    const bench_row *row = &p->result->rows[i];
    if (!shown(p, row)) continue;
    if (category_index(p, row) == p->categories && p->categories < MOST_CATEGORIES)
      category_of(p, row, p->category[p->categories++]);
    p->used[series_of(row)] = true;
    p->high = fmax(p->high, value_of(p, row, p->unit == MICROSECONDS ? row->q80 : row->q20));
    if (p->unit == GBPS) p->high = fmax(p->high, row->copy_gbps);
  }
  if (p->categories == 0) return false;
  const bool words = p->result->axis == BENCH_ONE || p->result->axis == BENCH_MODELS;
  if (!words) qsort(p->category, (size_t)p->categories, NAME, by_number);
  for (int i = 0; i < p->result->count; ++i) {
    const bench_row *row = &p->result->rows[i];
    const int c = shown(p, row) ? category_index(p, row) : p->categories;
    if (c < p->categories) p->has[c][series_of(row)] = true;
  }
  for (int i = 0; i < p->categories; ++i)
    if (strlen(p->category[i]) > longest) longest = strlen(p->category[i]);
  p->tilted = words && 8.0 * (double)longest > (double)(WIDTH - LEFT - RIGHT) / p->categories;
  p->tick = plot_tick(p->high, 6);
  p->high = p->tick * ceil(p->high / p->tick);
  return true;
}

static double bottom_of(const panel *p) { return p->first_y + HEIGHT - BOTTOM; }

static double x_of(const panel *p, double category) {
  return LEFT + (WIDTH - LEFT - RIGHT) * (category + 0.5) / p->categories;
}

static double y_of(const panel *p, double value) { return bottom_of(p) - (HEIGHT - TOP - BOTTOM) * value / p->high; }

/* What all rows of the panel share beside the swept size. */
static void x_label(const panel *p, char words[96]) {
  int64_t low = INT64_MAX, high = 0;
  const bench_axis axis = p->result->axis;
  for (int i = 0; i < p->result->count; ++i) {
    const bench_row *row = &p->result->rows[i];
    if (!shown(p, row)) continue;
    const int64_t size = axis == BENCH_ROWS ? row->at.cols : row->at.rows;
    low = size < low ? size : low;
    high = size > high ? size : high;
  }
  const char *other = axis == BENCH_ROWS ? "columns" : "rows";
  const char *name = axis == BENCH_ROWS      ? "rows"
                     : axis == BENCH_WIDTH   ? "columns"
                     : axis == BENCH_THREADS ? "threads"
                                             : "";
  if (!*name)
    words[0] = 0;
  else if (low == high)
    snprintf(words, 96, "%s, with %" PRId64 " %s", name, low, other);
  else
    snprintf(words, 96, "%s, with %" PRId64 " %s in f32 and %" PRId64 " in 16 bits", name, low, other, high);
}

static void axes(const panel *p) {
  static const char *const titles[UNITS] = {"operators that memory bounds", "operators that matrix products bound",
                                            "the cost of a call"};
  static const char *const names[UNITS] = {"GB/s, by the bytes that must move", "GFLOP/s", "microseconds a call"};
  char words[96];
  for (int i = 0; i * p->tick <= p->high * (1 + 1e-9); ++i) {
    const double y = y_of(p, i * p->tick);
    plot_rule(p->file, LEFT, y, WIDTH - RIGHT, y, "grid");
    snprintf(words, sizeof words, "%g", i * p->tick);
    plot_text(p->file, LEFT - 10, y + 5, "end", "tick", words);
  }
  plot_rule(p->file, LEFT, bottom_of(p), WIDTH - RIGHT, bottom_of(p), "axis");
  plot_rule(p->file, LEFT, p->first_y + TOP, LEFT, bottom_of(p), "axis");
  for (int i = 0; i < p->categories; ++i) {
    plot_rule(p->file, x_of(p, i), bottom_of(p), x_of(p, i), bottom_of(p) + 6, "axis");
    if (p->tilted)
      plot_turned(p->file, x_of(p, i) + 4, bottom_of(p) + 20, -30, "end", "tick", p->category[i]);
    else
      plot_text(p->file, x_of(p, i), bottom_of(p) + 22, "middle", "tick", p->category[i]);
  }
  x_label(p, words);
  plot_text(p->file, 0.5 * (LEFT + WIDTH - RIGHT), bottom_of(p) + 44, "middle", "label", words);
  plot_turned(p->file, 22, 0.5 * (p->first_y + TOP + bottom_of(p)), -90, "middle", "label", names[p->unit]);
  plot_text(p->file, LEFT, p->first_y + TOP - 14, "start", "title", p->op ? p->op : titles[p->unit]);
}

/* A class has the colour of the mode and the dashes of the dtype; f32 is a full mark, bf16 an empty one, f16 a diamond. */
static void mark(const panel *p, int series, double x, double y) {
  const int dtype = series / BENCH_MODES;
  if (dtype == TIGON_F16)
    fprintf(p->file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\" transform=\"rotate(45 %.1f %.1f)\"", x - 4,
            y - 4, x, y);
  else
    fprintf(p->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"", x, y);
  fprintf(p->file, " class=\"m%d\"%s/>\n", series % BENCH_MODES, dtype == TIGON_F32 ? "" : " style=\"fill:#fff\"");
}

static void line_class(char words[32], int series) {
  snprintf(words, 32, "m%d %s", series % BENCH_MODES, tigon_dtype_name((tigon_dtype)(series / BENCH_MODES)));
}

/* Series lie side by side within a category, so that no bar hides another: how far from its middle. */
static double aside(const panel *p, int category, int series) {
  int place = 0, count = 0;
  for (int s = 0; s < SERIES; ++s)
    if (p->has[category][s]) place += s < series, ++count;
  return fmin(9, 0.8 * (WIDTH - LEFT - RIGHT) / p->categories / count) * (place - 0.5 * (count - 1));
}

static void draw_series(const panel *p, int series) {
  char class[32];
  line_class(class, series);
  double last_x = -1, last_y = 0;
  for (int c = 0; c < p->categories; ++c)
    for (int i = 0; i < p->result->count; ++i) {
      const bench_row *row = &p->result->rows[i];
      if (!shown(p, row) || series_of(row) != series || category_index(p, row) != c) continue;
      const double x = x_of(p, c) + aside(p, c, series), y = y_of(p, value_of(p, row, row->median));
      const double ends[2] = {y_of(p, value_of(p, row, row->q20)), y_of(p, value_of(p, row, row->q80))};
      const bool sweep = p->result->axis != BENCH_ONE && p->result->axis != BENCH_MODELS;
      if (sweep && last_x >= 0) plot_rule(p->file, last_x, last_y, x, y, class);
      class[2] = 0; /* a bar is never dashed */
      plot_rule(p->file, x, ends[0], x, ends[1], class);
      for (int e = 0; e < 2; ++e) plot_rule(p->file, x - 3, ends[e], x + 3, ends[e], class);
      class[2] = ' ';
      mark(p, series, x, y);
      last_x = x, last_y = y;
    }
}

/* The copy that ran in turns with the rows: a short line over each category, the mean of what its rows saw. */
static bool draw_copy(const panel *p) {
  bool any = false;
  for (int c = 0; p->unit == GBPS && c < p->categories; ++c) {
    double sum = 0, count = 0;
    for (int i = 0; i < p->result->count; ++i) {
      const bench_row *row = &p->result->rows[i];
      if (shown(p, row) && category_index(p, row) == c && row->copy_gbps > 0) sum += row->copy_gbps, ++count;
    }
    if (count == 0) continue;
    const double half = 0.42, y = y_of(p, sum / count);
    plot_rule(p->file, x_of(p, c - half), y, x_of(p, c + half), y, "copy");
    any = true;
  }
  return any;
}

static void legend(const panel *p, bool copy) {
  const double x = WIDTH - RIGHT + 16;
  double y = p->first_y + TOP + 8;
  char words[48], class[32];
  for (int series = 0; series < SERIES; ++series) {
    if (!p->used[series]) continue;
    line_class(class, series);
    plot_rule(p->file, x, y, x + 30, y, class);
    mark(p, series, x + 15, y);
    snprintf(words, sizeof words, "%s %s", bench_mode_name((bench_mode)(series % BENCH_MODES)),
             tigon_dtype_name((tigon_dtype)(series / BENCH_MODES)));
    plot_text(p->file, x + 40, y + 5, "start", "label", words);
    y += 23;
  }
  if (!copy) return;
  plot_rule(p->file, x, y, x + 30, y, "copy");
  plot_text(p->file, x + 40, y + 5, "start", "label", "copy");
}

static void draw(const panel *p) {
  axes(p);
  const bool copy = draw_copy(p);
  for (int series = 0; series < SERIES; ++series)
    if (p->used[series]) draw_series(p, series);
  legend(p, copy);
}

/* The next panel that is not empty, from row *next on; false after the last one. */
static bool next_panel(const bench_result *result, int *next, panel *p) {
  const bool each = result->axis != BENCH_ONE; /* a panel an operator */
  for (; *next < result->count; ++*next) {
    const bench_row *row = &result->rows[*next];
    bool seen = row->outcome != BENCH_MEASURED;
    for (int i = 0; i < *next && !seen; ++i)
      seen = result->rows[i].outcome == BENCH_MEASURED && unit_of(result, &result->rows[i]) == unit_of(result, row) &&
             (!each || strcmp(result->rows[i].op, row->op) == 0);
    if (seen) continue;
    *p = (panel){.result = result,
                 .op = each ? row->op : NULL,
                 .unit = unit_of(result, row),
                 .file = p->file,
                 .first_y = p->first_y};
    ++*next;
    if (collect(p)) return true;
  }
  return false;
}

void bench_print_svg(const bench_result *result, FILE *file) {
  static panel p;
  tigon_machine machine;
  char words[256];
  int height = HEAD, next = 0;
  tigon_machine_read(&machine);
  p = (panel){.file = file};
  while (next_panel(result, &next, &p)) height += HEIGHT + (p.tilted ? TILTED : 0);
  plot_open(file, WIDTH, height,
            ".m0 { stroke: #1f5fa8; fill: #1f5fa8 } .m1 { stroke: #c8501e; fill: #c8501e }\n"
            ".m2 { stroke: #2b7f3b; fill: #2b7f3b } .m3 { stroke: #7a3fa0; fill: #7a3fa0 }\n"
            ".m4 { stroke: #8a6d00; fill: #8a6d00 } .m5 { stroke: #0f7a7a; fill: #0f7a7a }\n"
            ".m6 { stroke: #a02860; fill: #a02860 }\n"
            "line, circle, rect { stroke-width: 1.8 } .bf16 { stroke-dasharray: 6 3 } .f16 { stroke-dasharray: 2 3 }\n"
            ".copy { stroke: #999; stroke-width: 2.5 }\n");
  if (result->device)
    snprintf(words, sizeof words, "%.127s, %.20s", result->device, result->variant);
  else
    snprintf(words, sizeof words, "%.127s, %d thread%s, %.20s", machine.model, result->threads,
             result->threads == 1 ? "" : "s", result->variant);
  plot_text(file, LEFT, 28, "start", "title", words);
  snprintf(words, sizeof words, "medians; bars from the 20 %% to the 80 %% quantile of the samples%s",
           result->hot ? "; tensors stay in the caches" : "");
  plot_text(file, LEFT, 50, "start", "tick", words);
  p.first_y = HEAD;
  for (next = 0; next_panel(result, &next, &p); p.first_y += HEIGHT + (p.tilted ? TILTED : 0)) draw(&p);
  plot_close(file);
}
