/* A run's outputs against the oracle's, and against those of another run. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "check/internal.h"
#include "core/context.h"
#include "core/half.h"

void check_fail(check *k, const char *format, ...) {
  if (k->failure[0]) return;
  va_list list;
  va_start(list, format);
  vsnprintf(k->failure, sizeof k->failure, format, list);
  va_end(list);
}

/* ---- the caller's state ---- */

enum { CALLER_ERRNO = 77 };

#if defined(__x86_64__)
/* Flush-to-zero and round-up, which a kernel must neither feel nor change; valgrind takes a part of it. */
static void odd_float_state(check *k) {
  _mm_setcsr(0x1f80 | 0x8040 | _MM_ROUND_UP);
  k->float_state = _mm_getcsr();
}
static bool float_state_kept(check *k) {
  const unsigned state = _mm_getcsr();
  _mm_setcsr(0x1f80);
  return state == k->float_state;
}
#else
static void odd_float_state(check *k) { (void)k; }
static bool float_state_kept(check *k) { return (void)k, true; }
#endif

/* The oracle runs with the usual state. */
static bool is_tested(const check *k) { return k->expected || strcmp(k->context->queue.backend->name, "ref") != 0; }

void check_make_call(check *k, const void *args, size_t bytes) {
  const bool is_away = check_is_away(k);
  if ((is_away && !k->timed) || (k->twist && k->twist->aliases)) check_snapshot(k); /* it may be refused */
  if (k->timed) {
    k->timed->args = malloc(bytes);
    if (k->timed->args) memcpy(k->timed->args, args, bytes);
    return;
  }
  check_away away;
  if (is_away && !(args = check_send(k, args, bytes, &away))) return;
  errno = CALLER_ERRNO;
  if (is_tested(k)) odd_float_state(k);
  const tigon_status status = check_entry_call(k->entry, k->context, args);
  const int error = errno;
  if (is_tested(k) && !float_state_kept(k)) check_fail(k, "the call changed the caller's floating-point state");
  if (is_away) check_fetch(k, &away);
  if (error != CALLER_ERRNO) check_fail(k, "the call changed errno to %d", error);
  k->status = status;
  if (status == TIGON_ERROR_UNSUPPORTED && k->expected && is_away)
    return; /* that device lacks a kernel for such options */
  if (status != TIGON_OK && !(k->twist && k->twist->aliases))
    check_fail(k, "%s: %s", tigon_status_name(status), tigon_last_error(k->context));
}

/* ---- against the oracle ---- */

static const struct format {
  int digits, min_exponent; /* significand bits, exponent of the smallest normal number */
} formats[] = {[TIGON_F32] = {24, -126},
               [TIGON_F16] = {11, -14},
               [TIGON_BF16] = {8, -126},
               [TIGON_F8E4M3] = {4, -6},
               [TIGON_I8] = {24, -126}};

static double power_of_two(int exponent) {
  const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return power;
}

/* Distance of neighbouring numbers of dtype around v. */
static double ulp(double v, tigon_dtype dtype) {
  const struct format f = formats[dtype];
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  if (exponent < f.min_exponent) exponent = f.min_exponent;
  return power_of_two(exponent - f.digits + 1);
}

static bool is_float(tigon_dtype dtype) {
  return dtype == TIGON_F32 || dtype == TIGON_F16 || dtype == TIGON_BF16 || dtype == TIGON_F8E4M3;
}

static check_buffer *find(const check *k, const tigon_tensor *t) {
  for (int i = 0; i < k->count; ++i)
    if (k->buffers[i].start == t->data && k->buffers[i].role != CHECK_ROLE_SCRATCH) return &k->buffers[i];
  return NULL;
}

static bool element_ok(check *k, const check_buffer *b, int64_t i, double got, double expected, double bound) {
  if (isnan(expected) ? isnan(got) : got == expected || (isfinite(expected) && fabs(got - expected) <= bound)) {
    if (isfinite(expected) && bound > 0) k->worst = fmax(k->worst, fabs(got - expected) / bound);
    return true;
  }
  /* Which of the two Inf - Inf and 0 * Inf come to depends on the order of evaluation. */
  if (k->twist && k->twist->plants && !isfinite(expected) && !isfinite(got)) return ++k->other_kind, true;
  if (isfinite(expected)) k->worst = INFINITY;
  check_fail(k, "%s[%lld] is %.9g, must be %.9g within %.3g (error %.3g)", b->name, (long long)i, got, expected, bound,
             fabs(got - expected));
  return false;
}

static check_error *error_of(check *k, const check_buffer *b, double ulps, double factor) {
  int at = 0;
  while (at < k->errors.count && strcmp(k->errors.of[at].output, b->name) != 0) ++at;
  if (at == CHECK_ERRORS) abort();
  check_error *e = &k->errors.of[at];
  if (at == k->errors.count) *e = (check_error){.output = b->name}, ++k->errors.count;
  e->ulps = fmax(e->ulps, ulps), e->factor = fmax(e->factor, factor);
  return e;
}

static void record(check_error *error, double off, double ulps, double bound, bool cancelled) {
  ++error->elements;
  error->other += off > 0;
  if (bound > 0) error->share = fmax(error->share, off / bound);
  if (!cancelled) error->ulp = fmax(error->ulp, ulps);
}

static tigon_precision precision_of(const check *k) {
  const tigon_backend *backend = k->context->queue.backend;
  return k->oracle && backend->precision ? backend->precision(&k->context->queue) : (tigon_precision){0};
}

double check_calls(const check *k, double functions, double divisions) {
  return 2 * precision_of(k).ulps * (functions + 2 * divisions);
}

/* Ascend's backends alone have plans. */
static bool is_ascend(const check *k) { return k->context->queue.backend->plans != NULL; }
double check_wide(const check *k) { return precision_of(k).no_f64 ? 0x1p-35 : 0x1p-50; }
bool check_has_f64(const check *k) { return !precision_of(k).no_f64; }
bool check_has_fma(const check *k) { return !is_ascend(k); }

double check_flushed(const check *k) { return precision_of(k).flushes ? 0x1p-126 * 0x1p24 : 0; }

/* Where the view's element i is, in elements from the buffer's start; `row` is that of its row. */
static int64_t walk(const tigon_tensor *view, int64_t i, int64_t *row) {
  const int64_t cols = view->shape[view->ndim - 1];
  if (i % cols == 0) *row = check_offset(view, i);
  return *row + i % cols * view->strides[view->ndim - 1];
}

static void within(check *k, const check_limit *limit) {
  check_buffer *b = &k->buffers[limit->buffer];
  const tigon_dtype dtype = limit->view.dtype;
  const void *expected = k->expected->buffers[limit->buffer].start;
  check_error *error = error_of(k, b, limit->ulps, limit->factor);
  const int64_t count = check_elements(&limit->view);
  b->bounded = true;
  for (int64_t i = 0, row = 0; i < count; ++i) {
    const int64_t at = walk(&limit->view, i, &row);
    const double e = tigon_load_f64(expected, at, dtype), got = tigon_load_f64(b->start, at, dtype);
    const double bound = fabs(limit->of[i]);
    if (!element_ok(k, b, i, got, e, bound)) return;
    if (isfinite(e)) record(error, fabs(got - e), fabs(got - e) / ulp(e, dtype), bound, signbit(limit->of[i]));
  }
}

void check_known(check *k) {
  for (int i = 0; i < k->expected->limit_count && !k->failure[0]; ++i) within(k, &k->expected->limits[i]);
}

void check_bound(check *k, const tigon_tensor *out, double ulps, double factor, const double *magnitude) {
  check_bound_relative(k, out, ulps, factor, magnitude, 0);
}

void check_bound_relative(check *k, const tigon_tensor *out, double ulps, double factor, const double *magnitude,
                          double relative) {
  check_buffer *b = find(k, out);
  if (!b) return;
  b->bounded = true;
  if (!k->oracle || k->failure[0] || k->status == TIGON_ERROR_UNSUPPORTED || (k->twist && k->twist->aliases)) return;
  const int64_t count = check_elements(out);
  check_limit limit = {.buffer = (int)(b - k->buffers), .view = *out, .ulps = ulps, .factor = factor};
  limit.of = check_need(malloc((size_t)count * sizeof *limit.of + 1));
  const void *expected = k->oracle->buffers[limit.buffer].start;
  const struct format f = formats[out->dtype];
  const double least = power_of_two(f.min_exponent - f.digits + 1);
  for (int64_t i = 0, row = 0; i < count; ++i) {
    const double e = tigon_load_f64(expected, walk(out, i, &row), out->dtype);
    double bound = isfinite(e) ? ulps * ulp(e, out->dtype) + (magnitude ? factor * 0x1p-24 * magnitude[i] : 0) +
                                     relative * 0x1p-24 * fabs(e) + least
                               : 0;
    /* A planted Inf can make NaN of a magnitude (0 * Inf) whose result it does not reach. */
    if (isnan(bound) && k->twist && k->twist->plants) bound = ulps * ulp(e, out->dtype) + 0x1p-16 * fabs(e) + least;
    limit.of[i] = magnitude && fabs(e) < 0.125 * magnitude[i] ? -bound : bound;
  }
  k->limits = check_need(realloc(k->limits, (size_t)(k->limit_count + 1) * sizeof *k->limits));
  k->limits[k->limit_count++] = limit;
  within(k, &limit);
}

void check_exact(check *k) {
  for (int i = 0; i < k->count && !k->failure[0]; ++i) {
    const check_buffer *b = &k->buffers[i];
    if ((b->role != CHECK_ROLE_OUT && b->role != CHECK_ROLE_INOUT) || b->bounded) continue;
    const int64_t count = check_elements(&b->tensor);
    error_of(k, b, 0, 0)->elements += count;
    for (int64_t e = 0; e < count; ++e)
      if (!element_ok(k, b, e, check_value(&b->tensor, e), check_value(&k->expected->buffers[i].tensor, e), 0)) break;
  }
}

/* ---- against another run ---- */

/* Element e of a against element e + skipped of b. Which NaN it is does not count. */
static bool same_element(const check_buffer *a, const check_buffer *b, int64_t e, int64_t skipped) {
  const size_t size = tigon_dtype_size(a->tensor.dtype);
  const char *x = a->start + (size_t)check_offset(&a->tensor, e) * size,
             *y = b->start + (size_t)check_offset(&b->tensor, e + skipped) * size;
  return memcmp(x, y, size) == 0 || (is_float(a->tensor.dtype) && isnan(check_value(&a->tensor, e)) &&
                                     isnan(check_value(&b->tensor, e + skipped)));
}

static bool same_elements(check *k, const check_buffer *a, const check_buffer *b, int64_t skipped, const char *what) {
  const int64_t count = check_elements(&a->tensor), cols = a->tensor.shape[a->tensor.ndim - 1];
  const size_t size = tigon_dtype_size(a->tensor.dtype);
  for (int64_t e = 0; e < count; ++e) {
    const char *x = a->start + (size_t)check_offset(&a->tensor, e) * size,
               *y = b->start + (size_t)check_offset(&b->tensor, e + skipped) * size;
    if (e % cols == 0 && memcmp(x, y, size * (size_t)cols) == 0) {
      e += cols - 1; /* a whole row alike */
    } else if (!same_element(a, b, e, skipped)) {
      check_fail(k, "%s[%lld] is %.9g %s and %.9g before: the bits differ", a->name, (long long)e,
                 check_value(&a->tensor, e), what, check_value(&b->tensor, e + skipped));
      return false;
    }
  }
  return true;
}

static bool is_output(const check_buffer *b) { return b->role == CHECK_ROLE_OUT || b->role == CHECK_ROLE_INOUT; }

bool check_same_bits(check *k, const check *other, const char *what) {
  for (int i = 0; i < k->count; ++i)
    if (is_output(&k->buffers[i]) && !same_elements(k, &k->buffers[i], &other->buffers[i], 0, what)) return false;
  return true;
}

/* Takes `like`'s elements, from element `first` of b on, out of a device's memory; for free(). */
static void fetch_elements(check *k, check_buffer *b, int64_t first, const tigon_tensor *like) {
  const size_t size = tigon_dtype_size(like->dtype), bytes = (size_t)check_elements(like) * size;
  char *copy = check_need(malloc(bytes + 1));
  const tigon_status status = tigon_copy(k->context, copy, b->start + (size_t)first * size, bytes);
  if (status != TIGON_OK) check_fail(k, "%s", tigon_last_error(k->context));
  b->tensor = *like;
  b->start = b->tensor.data = copy;
}

int check_same_rows(check *k, const check *whole, int64_t first) {
  int compared = 0;
  const bool is_away = k->timed && check_is_away(k);
  for (int i = 0; i < k->count && !k->failure[0]; ++i) {
    check_buffer a = k->buffers[i], b = whole->buffers[i];
    const int64_t rows = b.tensor.shape[0];
    if (!is_output(&a) || a.tensor.shape[0] == rows) continue;
    const int64_t skipped = first * (rows / whole->dims[0]) * (check_elements(&b.tensor) / rows);
    ++compared;
    if (is_away) fetch_elements(k, &a, 0, &a.tensor), fetch_elements(k, &b, skipped, &a.tensor);
    if (!k->failure[0]) same_elements(k, &a, &b, is_away ? 0 : skipped, "by themselves");
    if (is_away) free(a.start), free(b.start);
  }
  return compared;
}
