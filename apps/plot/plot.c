#include "plot.h"

#include <math.h>

void plot_open(FILE *file, int width, int height, const char *style) {
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
          "font-family=\"system-ui, sans-serif\">\n"
          "<style>\n"
          ".tick { font-size: 13px; fill: #444 } .label { font-size: 14px; fill: #222 }\n"
          ".title { font-size: 17px; font-weight: 600; fill: #111 }\n"
          ".grid { stroke: #e3e3e3; stroke-width: 1 } .axis { stroke: #444; stroke-width: 1.2 }\n"
          "%s"
          "</style>\n"
          "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
          width, height, width, height, style, width, height);
}

void plot_close(FILE *file) { fputs("</svg>\n", file); }

static void escaped(FILE *file, const char *words) {
  for (; *words; ++words) {
    if (*words == '<')
      fputs("&lt;", file);
    else if (*words == '>')
      fputs("&gt;", file);
    else if (*words == '&')
      fputs("&amp;", file);
    else
      fputc(*words, file);
  }
  fputs("</text>\n", file);
}

void plot_text(FILE *file, double x, double y, const char *anchor, const char *class, const char *words) {
  fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, class);
  escaped(file, words);
}

void plot_turned(FILE *file, double x, double y, int degrees, const char *anchor, const char *class,
                 const char *words) {
  fprintf(file, "<text transform=\"translate(%.1f %.1f) rotate(%d)\" text-anchor=\"%s\" class=\"%s\">", x, y, degrees,
          anchor, class);
  escaped(file, words);
}

void plot_rule(FILE *file, double x0, double y0, double x1, double y1, const char *class) {
  fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x0, y0, x1, y1, class);
}

double plot_tick(double span, int count) {
  const double rough = span / count, power = pow(10, floor(log10(rough)));
  const double ratio = rough / power;
  return power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}
