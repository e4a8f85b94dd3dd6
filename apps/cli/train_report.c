#include "train_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../train/curve.h"
#include "../train/json_memory.h"
#include "cli.h"
#include "term.h"

/* ---- JSON ---- */

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static void print_line(json_t *object) {
  if (train_json_lacked() || json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0) {
    cli_say("tigon train", "no memory for a line of JSON, which is left out");
    json_decref(object);
    return;
  }
  json_decref(object);
  putchar('\n');
  fflush(stdout);
}

/* What is not known is left out. */
static void set_mfu(json_t *line, double mfu) {
  if (isfinite(mfu)) json_object_set_new(line, "mfu", json_real(mfu));
}

static void json_step(const train_report *report, const train_step_report *s) {
  train_json_begin();
  json_t *line = json_pack("{s:I, s:o, s:o, s:I}", "step", (json_int_t)s->step, "loss", number(s->loss), "tokens_per_s",
                           number(s->tokens_per_s), "peak_bytes", (json_int_t)s->peak_bytes);
  set_mfu(line, s->mfu);
  if (s->scaler->on) {
    json_object_set_new(line, "loss_scale", json_real(s->scaler->scale));
    json_object_set_new(line, "skipped_steps", json_integer((json_int_t)s->scaler->skipped));
  }
  if (report->compare) {
    json_object_set_new(line, "unfused_loss", number(s->unfused_loss));
    json_object_set_new(line, "loss_diff", number(fabs(s->unfused_loss - s->loss)));
  }
  print_line(line);
}

static void json_end(const train_summary *s) {
  train_json_begin();
  if (s->compare)
    print_line(json_pack("{s:{s:f, s:f, s:f, s:o, s:f, s:o, s:I}}", "compare", "max_loss_diff",
                         s->compare->max_loss_diff, "speed_ratio", s->compare->speed_ratio, "memory_ratio",
                         s->compare->memory_ratio, "loss_bound", number(s->compare->loss_bound), "max_gradient_diff",
                         s->compare->max_gradient_diff, "gradient_bound", number(s->compare->gradient_bound),
                         "steps_outside", (json_int_t)s->compare->steps_outside));
  json_t *line = json_pack("{s:b, s:o, s:o, s:I, s:I}", "done", s->signal == 0, "heldout_loss", number(s->heldout_loss),
                           "tokens_per_s", number(s->tokens_per_s), "peak_bytes", (json_int_t)s->peak_bytes, "steps",
                           (json_int_t)s->steps);
  set_mfu(line, s->mfu);
  if (s->scaler->on) json_object_set_new(line, "skipped_steps", json_integer((json_int_t)s->scaler->skipped));
  if (s->best_step > 0) {
    json_object_set_new(line, "best_step", json_integer((json_int_t)s->best_step));
    json_object_set_new(line, "best_heldout_loss", number(s->best_loss));
  }
  if (s->out) json_object_set_new(line, "out", json_string(s->out));
  if (s->sample) json_object_set_new(line, "sample", json_string(s->sample));
  print_line(line);
}

/* ---- people ---- */

/* "12 s", "3 min 20 s", "2 h 5 min" */
static char *duration(char text[TERM_NUMBER], double seconds) {
  const int64_t s = (int64_t)(seconds + 0.5);
  if (s < 60)
    snprintf(text, TERM_NUMBER, "%d s", (int)s);
  else if (s < 3600)
    snprintf(text, TERM_NUMBER, "%d min %d s", (int)(s / 60), (int)(s % 60));
  else
    snprintf(text, TERM_NUMBER, "%d h %d min", (int)(s / 3600 % 100000), (int)(s / 60 % 60));
  return text;
}

/* The most memory that the process ever had resident, in bytes, as Linux counts it; 0 elsewhere. */
static int64_t resident_peak(void) {
  char line[256];
  long long kib = 0;
  FILE *file = fopen("/proc/self/status", "re");
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "VmHWM: %lld kB", &kib) == 1) break;
  fclose(file);
  return 1024 * (int64_t)kib;
}

static void on_note(void *user, const char *sentence) {
  const train_report *report = user;
  if (report->quiet) return;
  term_progress_clear();
  fprintf(stderr, "tigon train: %s\n", sentence);
}

static void on_begin(void *user, const train_begin *b) {
  train_report *report = user;
  const train_options *o = b->options;
  report->steps = o->steps;
  if (report->quiet || report->json) return;
  fprintf(stderr,
          "Llama of %.2f M parameters (%" PRId64 " layers, %" PRId64 " wide, %" PRId64 " heads on %" PRId64
          "), %s, on %s\n",
          1e-6 * (double)b->parameters, o->layers, o->hidden, o->heads, o->kv_heads, o->dtype, b->device);
  fprintf(stderr, "matrices by %s\n", b->gemm);
  fprintf(stderr, "data: %s, %" PRId64 " %s to train on, %" PRId64 " held out\n",
          o->data ? o->data : "the King James Bible", b->train_tokens, b->is_text ? "bytes" : "tokens",
          b->heldout_tokens);
  fprintf(stderr, "steps %" PRId64 " to %" PRId64 " of %" PRId64 " x %" PRId64 " tokens", b->first_step, o->steps,
          o->batch, o->seq);
  if (b->ranks > 1) fprintf(stderr, " on %d ranks", b->ranks);
  if (b->out) fprintf(stderr, ", saved in %s", b->out);
  fputc('\n', stderr);
}

enum { SPEED = 80 };
/* "12345 tokens/s, 41 % MFU" */
static char *speed(char text[SPEED], double tokens_per_s, double mfu) {
  const int length = snprintf(text, SPEED, "%.0f tokens/s", tokens_per_s), digits = mfu < 0.1 ? 2 : 0;
  if (isfinite(mfu) && length < SPEED)
    snprintf(text + length, (size_t)(SPEED - length), ", %.*f %% MFU", digits, 100 * mfu);
  return text;
}

static void on_step(void *user, const train_step_report *s) {
  const train_report *report = user;
  char memory[TERM_NUMBER], left[TERM_NUMBER], rate[SPEED], norm[64], text[240];
  if (report->json) {
    if (s->logged) json_step(report, s);
    return;
  }
  if (report->compare && s->logged)
    printf("step %6" PRId64 "  fused %.6f  unfused %.6f  difference %.2e\n", s->step, s->loss, s->unfused_loss,
           fabs(s->unfused_loss - s->loss));
  if (report->quiet) return;
  term_bytes(memory, s->peak_bytes);
  if (term_width(stderr) > 0) {
    snprintf(text, sizeof text, "loss %.4f  %s  %s left  %s", s->loss, speed(rate, s->tokens_per_s, s->mfu),
             duration(left, s->seconds_left), memory);
    term_progress(s->step, report->steps, text);
  } else if (s->logged && !report->compare) {
    snprintf(norm, sizeof norm, isfinite(s->norm) ? "%.2f" : "none", s->norm);
    fprintf(stderr, "step %6" PRId64 "/%" PRId64 "  loss %.4f  lr %.2e  norm %s  %s  %s\n", s->step, report->steps,
            s->loss, s->lr, norm, speed(rate, s->tokens_per_s, s->mfu), memory);
  }
}

static void on_heldout(void *user, int64_t step, double loss, bool best) {
  const train_report *report = user;
  if (report->quiet || report->json) return;
  term_progress_clear();
  fprintf(stderr, "step %6" PRId64 "/%" PRId64 "  held-out loss %.4f%s\n", step, report->steps, loss,
          best ? ", the lowest so far: saved in best" : "");
}

static void print_curve(const train_summary *s) {
  const char *codeset = setlocale(LC_CTYPE, "") ? nl_langinfo(CODESET) : "";
  const int width = term_width(stdout);
  const train_curve_style style = {.train = term_start(stdout, TERM_GREEN),
                                   .heldout = term_start(stdout, TERM_YELLOW),
                                   .axis = term_start(stdout, TERM_DIM),
                                   .plain = term_start(stdout, TERM_PLAIN),
                                   .width = width == 0 || width > 100 ? 100 : width,
                                   .unicode = strcmp(codeset, "UTF-8") == 0};
  train_curve_print(stdout, s->history, &style);
  fputc('\n', stdout);
}

static void print_comparison(const train_comparison *c) {
  const term_column columns[] = {
      {"", false, 0}, {"fused", true, 0}, {"unfused", true, 0}, {"fused / unfused", true, 0}};
  char bytes[TERM_NUMBER];
  term_table *table = term_table_new(columns, 4);
  term_cell(table, TERM_PLAIN, "tokens/s (median step)");
  term_cell(table, TERM_PLAIN, "%.0f", c->tokens_per_s);
  term_cell(table, TERM_PLAIN, "%.0f", c->unfused_tokens_per_s);
  term_cell(table, c->speed_ratio > 1 ? TERM_GREEN : TERM_RED, "%.2f", c->speed_ratio);
  term_cell(table, TERM_PLAIN, "peak memory");
  term_cell(table, TERM_PLAIN, "%s", term_bytes(bytes, c->peak_bytes));
  term_cell(table, TERM_PLAIN, "%s", term_bytes(bytes, c->unfused_peak_bytes));
  term_cell(table, c->memory_ratio < 1 ? TERM_GREEN : TERM_RED, "%.2f", c->memory_ratio);
  term_table_print(table, stdout);
  if (isnan(c->loss_bound)) {
    printf("the runs went apart: losses differ by at most %.2e nats a token\n\n", c->max_loss_diff);
    return;
  }
  printf("from the same weights, a step's losses differ by at most %.2e nats a token, the bound is %.2e\n",
         c->max_loss_diff, c->loss_bound);
  printf("and its gradients, tensor by tensor, by at most %.2e of their norm, the bound is %.2e\n\n",
         c->max_gradient_diff, c->gradient_bound);
}

static void on_end(void *user, const train_summary *s) {
  const train_report *report = user;
  char bytes[TERM_NUMBER], resident[TERM_NUMBER], rate[SPEED];
  term_progress_clear();
  if (report->json) {
    json_end(s);
    return;
  }
  if (s->signal == 0 && !report->quiet) print_curve(s);
  if (s->sample) printf("%s%s%s\n\n", term_start(stdout, TERM_BOLD), s->sample, term_start(stdout, TERM_PLAIN));
  if (s->compare) print_comparison(s->compare);
  if (s->signal == 0) printf("held-out loss  %.4f nats a token\n", s->heldout_loss);
  printf("steps          %" PRId64 "%s\n", s->steps, s->signal ? ", stopped by a signal" : "");
  if (s->scaler->on)
    printf("loss scale     %g, %" PRId64 " step%s skipped\n", s->scaler->scale, s->scaler->skipped,
           s->scaler->skipped == 1 ? "" : "s");
  if (s->tokens_per_s > 0) printf("speed          %s\n", speed(rate, s->tokens_per_s, s->mfu));
  term_bytes(bytes, s->peak_bytes);
  if (resident_peak() > 0)
    printf("memory         %s in buffers, %s resident at most\n", bytes, term_bytes(resident, resident_peak()));
  else
    printf("memory         %s in buffers\n", bytes);
  if (s->svg) printf("loss curve     %s\n", s->svg);
  if (s->out) printf("checkpoint     %s\n", s->out);
  if (s->best_step > 0)
    printf("the best       %s/best, step %" PRId64 ", held-out loss %.4f\n", s->out, s->best_step, s->best_loss);
  if (s->out && s->signal) printf("go on with     tigon train --resume %s\n", s->out);
}

train_observer train_report_observer(train_report *report) {
  return (train_observer){
      .user = report, .note = on_note, .begin = on_begin, .step = on_step, .heldout = on_heldout, .end = on_end};
}
