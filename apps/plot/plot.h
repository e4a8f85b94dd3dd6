/* SVG by hand: what the loss curve and the plots of `tigon bench` share. Lengths are pixels from the upper left. */
#ifndef TIGON_PLOT_H
#define TIGON_PLOT_H

#include <stdio.h>

/* A document with its own white background, so that it looks the same on a dark page. It has the classes tick, label, title
 * (words), grid and axis (lines). `style` has the caller's own. */
void plot_open(FILE *file, int width, int height, const char *style);
void plot_close(FILE *file);

/* Words at (x, y); `anchor` is start, middle or end. Turned by `degrees` around that point, clockwise. */
void plot_text(FILE *file, double x, double y, const char *anchor, const char *class, const char *words);
void plot_turned(FILE *file, double x, double y, int degrees, const char *anchor, const char *class, const char *words);

void plot_rule(FILE *file, double x0, double y0, double x1, double y1, const char *class);

/* A round step for about `count` ticks over `span`: 1, 2 or 5 times a power of ten. */
double plot_tick(double span, int count);

#endif
