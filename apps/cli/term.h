/* The terminal: colour, aligned tables, a progress bar, and numbers as people read them. */
#ifndef TIGON_TERM_H
#define TIGON_TERM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_GREEN, TERM_YELLOW, TERM_RED } term_style;

typedef enum term_color { TERM_COLOR_AUTO, TERM_COLOR_ALWAYS, TERM_COLOR_NEVER } term_color;

/* AUTO: colour on a terminal, unless NO_COLOR is set and not empty or TERM is "dumb". */
void term_set_color(term_color color);

/* The escape sequence that starts `style` on `file`, "" without colour. TERM_PLAIN ends any style. */
const char *term_start(FILE *file, term_style style);

/* Columns of `file`'s terminal; 0 when it is none. */
int term_width(FILE *file);

/* A table is filled cell by cell, row after row, then printed once and released. */
typedef struct term_column {
  const char *title;
  bool right; /* numbers */
  int drop;   /* 0: always shown; else left out of a terminal that is too narrow, the largest first */
} term_column;
typedef struct term_table term_table;

term_table *term_table_new(const term_column *columns, int count);
__attribute__((format(printf, 3, 4))) void term_cell(term_table *table, term_style style, const char *format, ...);
void term_table_free(term_table *table);
/* Blanks between columns, headed by a dim line of titles; nothing is left out of a pipe. The table is freed, here and below. */
void term_table_print(term_table *table, FILE *file);
/* As GitHub reads it. */
void term_table_print_markdown(term_table *table, FILE *file);

/* `text`, broken at blanks so that it fits the terminal, every line but the first indented by `indent`. */
void term_wrap(FILE *file, int indent, const char *text);

/* A bar on stderr, only when that is a terminal: "[######......] 12/40 rms_norm bwd". done == total clears it. */
void term_progress(int64_t done, int64_t total, const char *text);
/* Clears the bar so that a message can be printed; safe in a signal handler. */
void term_progress_clear(void);

/* Numbers, into `text`, which they return. Three significant digits: "64.0 MiB"; "1.23 ms". */
enum { TERM_NUMBER = 24 };
char *term_bytes(char text[TERM_NUMBER], int64_t bytes);
char *term_seconds(char text[TERM_NUMBER], double seconds);
/* "0.0123", "1.23", "12.3", "123", "1234" */
char *term_digits(char text[TERM_NUMBER], double value);

#endif
