#include "term.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static term_color color_choice = TERM_COLOR_AUTO;

void term_set_color(term_color color) { color_choice = color; }

static bool has_color(FILE *file) {
  if (color_choice != TERM_COLOR_AUTO) return color_choice == TERM_COLOR_ALWAYS;
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  return isatty(fileno(file)) && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0);
}

const char *term_start(FILE *file, term_style style) {
  static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};
  return has_color(file) ? codes[style] : "";
}

int term_width(FILE *file) {
  if (!isatty(fileno(file))) return 0;
  struct winsize size;
  if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

/* ---- tables ---- */

enum { CELL_BYTES = 160, MAX_COLUMNS = 16 };

typedef struct term_cell_text {
  char text[CELL_BYTES];
  term_style style;
} term_cell_text;

struct term_table {
  term_column columns[MAX_COLUMNS];
  int count;
  int64_t cells, capacity;
  term_cell_text *cell; /* [rows, count] */
};

static void *need(void *memory) {
  if (memory) return memory;
  fputs("tigon: out of memory\n", stderr);
  exit(3);
}

term_table *term_table_new(const term_column *columns, int count) {
  term_table *table = need(calloc(1, sizeof *table));
  table->count = count < MAX_COLUMNS ? count : MAX_COLUMNS;
  memcpy(table->columns, columns, (size_t)table->count * sizeof *columns);
  return table;
}

void term_cell(term_table *table, term_style style, const char *format, ...) {
  if (table->cells == table->capacity) {
    table->capacity = table->capacity ? 2 * table->capacity : 256;
    table->cell = need(realloc(table->cell, (size_t)table->capacity * sizeof *table->cell));
  }
  term_cell_text *cell = &table->cell[table->cells++];
  cell->style = style;
  va_list list;
  va_start(list, format);
  vsnprintf(cell->text, sizeof cell->text, format, list);
  va_end(list);
}

/* Column widths; 0 for a column that a terminal of `width` columns has no room for. */
static void measure(const term_table *table, int width, int widths[MAX_COLUMNS]) {
  int total = -2;
  for (int c = 0; c < table->count; ++c) {
    widths[c] = (int)strlen(table->columns[c].title);
    for (int64_t i = c; i < table->cells; i += table->count) {
      const int length = (int)strlen(table->cell[i].text);
      if (length > widths[c]) widths[c] = length;
    }
    total += widths[c] + 2;
  }
  while (width > 0 && total > width) {
    int victim = -1;
    for (int c = 0; c < table->count; ++c)
      if (widths[c] > 0 && table->columns[c].drop > (victim < 0 ? 0 : table->columns[victim].drop)) victim = c;
    if (victim < 0) return;
    total -= widths[victim] + 2;
    widths[victim] = 0;
  }
}

void term_table_free(term_table *table) {
  free(table->cell);
  free(table);
}

void term_table_print(term_table *table, FILE *file) {
  int widths[MAX_COLUMNS], last = 0;
  measure(table, term_width(file), widths);
  for (int c = 0; c < table->count; ++c)
    if (widths[c] > 0) last = c;
  for (int64_t row = -1; row < table->cells / table->count; ++row) {
    for (int c = 0; c <= last; ++c) {
      if (widths[c] == 0) continue;
      const term_cell_text *cell = row < 0 ? NULL : &table->cell[row * table->count + c];
      const char *text = cell ? cell->text : table->columns[c].title;
      const term_style style = cell ? cell->style : TERM_DIM;
      const int blanks = widths[c] - (int)strlen(text);
      if (table->columns[c].right) fprintf(file, "%*s", blanks, "");
      fputs(style != TERM_PLAIN ? term_start(file, style) : "", file);
      fputs(text, file);
      fputs(style != TERM_PLAIN ? term_start(file, TERM_PLAIN) : "", file);
      if (c < last) fprintf(file, "%*s", (table->columns[c].right ? 0 : blanks) + 2, "");
    }
    fputc('\n', file);
  }
  term_table_free(table);
}

void term_table_print_markdown(term_table *table, FILE *file) {
  for (int c = 0; c < table->count; ++c) fprintf(file, "| %s ", table->columns[c].title);
  fputs("|\n", file);
  for (int c = 0; c < table->count; ++c) fputs(table->columns[c].right ? "|---:" : "|---", file);
  fputs("|\n", file);
  for (int64_t i = 0; i < table->cells; ++i)
    fprintf(file, "| %s %s", table->cell[i].text, (i + 1) % table->count ? "" : "|\n");
  term_table_free(table);
}

void term_wrap(FILE *file, int indent, const char *text) {
  const int width = term_width(file) ? term_width(file) : 100;
  int column = indent;
  while (*text) {
    const int word = (int)strcspn(text, " ");
    if (column > indent && column + 1 + word > width) {
      fprintf(file, "\n%*s", indent, "");
      column = indent;
    }
    column += fprintf(file, "%s%.*s", column > indent ? " " : "", word, text);
    text += word + strspn(text + word, " ");
  }
  fputc('\n', file);
}

/* ---- progress ---- */

static volatile bool bar_shown;

void term_progress_clear(void) {
  if (bar_shown && write(STDERR_FILENO, "\r\033[K", 4) == 4) bar_shown = false;
}

void term_progress(int64_t done, int64_t total, const char *text) {
  enum { CELLS = 24 };
  const int width = term_width(stderr), cells = width < 100 ? CELLS / 2 : CELLS;
  if (width == 0 || total <= 0) return;
  if (done >= total) {
    term_progress_clear();
    return;
  }
  char bar[CELLS + 1], line[256];
  const int full = (int)(done * cells / total);
  for (int i = 0; i < cells; ++i) bar[i] = i < full ? '#' : '.';
  bar[cells] = 0;
  snprintf(line, sizeof line, "[%s] %" PRId64 "/%" PRId64 " %s", bar, done, total, text);
  fprintf(stderr, "\r\033[K%.*s", width - 1, line);
  bar_shown = true;
}

/* ---- numbers ---- */

char *term_digits(char text[TERM_NUMBER], double value) {
  const double size = fabs(value);
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
  snprintf(text, TERM_NUMBER, "%.*f", decimals, value);
  return text;
}

char *term_bytes(char text[TERM_NUMBER], int64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char digits[TERM_NUMBER];
  snprintf(digits, sizeof digits, "%.0f", value);
  snprintf(text, TERM_NUMBER, "%.12s %s", value == floor(value) ? digits : term_digits(digits, value), units[unit]);
  return text;
}

char *term_seconds(char text[TERM_NUMBER], double seconds) {
  char digits[TERM_NUMBER];
  const bool micro = seconds < 1e-3, milli = seconds < 1;
  term_digits(digits, seconds * (micro ? 1e6 : milli ? 1e3 : 1));
  snprintf(text, TERM_NUMBER, "%.12s %s", digits, micro ? "us" : milli ? "ms" : "s");
  return text;
}
