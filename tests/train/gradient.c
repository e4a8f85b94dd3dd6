/* The gradient of the whole model against differences of its loss, through the public operators, in f32. */
#include <math.h>

#include "tiny.h"

/* The loss in f32 carries about 1e-7 of itself as rounding, so a difference over +-h has an error of some 1e-6 / h beside
 * the h^4 of the four-point rule; with h = 0.02 both are near 1e-4. */
static const double step = 0.02;

static double loss_at(tiny *t, float *value, float x) {
  double loss = 0;
  *value = x;
  tiny_good(train_pass_loss(&t->pass, t->tokens, t->labels, &loss, &t->error), &t->error);
  return loss / TINY_TOKENS;
}

/* Four-point difference: error of order h^4. */
static double difference(tiny *t, float *value) {
  const float x = *value, h = (float)step;
  const double d = (8 * (loss_at(t, value, x + h) - loss_at(t, value, x - h)) -
                    (loss_at(t, value, x + 2 * h) - loss_at(t, value, x - 2 * h))) /
                   (12 * step);
  *value = x;
  return d;
}

/* Some elements of every tensor, those with the largest gradients and others. */
static void check_model(bool tied) {
  tiny t;
  tiny_open(&t, TIGON_F32, tied, true);
  tiny_scatter(&t);
  tiny_gradient(&t, 1.0 / TINY_TOKENS, false);
  double worst = 0;
  for (int64_t i = 0; i < t.model.tensor_count; ++i) {
    const train_tensor *tensor = &t.model.tensors[i];
    float *values = (float *)t.model.master.data + tensor->offset;
    const float *gradient = (const float *)t.model.gradient.data + tensor->offset;
    double largest = 0, error = 0;
    for (int64_t j = 0; j < tensor->count; ++j) largest = fmax(largest, fabs((double)gradient[j]));
    for (int n = 0; n < 12; ++n) {
      const int64_t j = (int64_t)(train_random(5, (uint64_t)i, (uint64_t)n) % (uint64_t)tensor->count);
      error = fmax(error, fabs(difference(&t, &values[j]) - (double)gradient[j]));
    }
    if (!(error <= 4e-4 + 4e-3 * largest))
      fail_msg("tensor %d (%s): error %g, largest gradient %g", (int)i, tied ? "tied" : "untied", error, largest);
    assert_true(largest > 1e-4);
    worst = fmax(worst, error);
  }
  print_message("%s: worst error %.2e\n", tied ? "tied" : "untied", worst);
  tiny_close(&t);
}

static void untied(void **state) {
  (void)state;
  check_model(false);
}

static void tied(void **state) {
  (void)state;
  check_model(true);
}

/* Two halves of grad_scale, the second added to the first, are the whole. */
static void accumulates(void **state) {
  (void)state;
  tiny t;
  tiny_open(&t, TIGON_F32, true, true);
  tiny_scatter(&t);
  tiny_gradient(&t, 1.0, false);
  float *whole = malloc(t.model.gradient.bytes);
  memcpy(whole, t.model.gradient.data, t.model.gradient.bytes);
  tiny_gradient(&t, 0.5, false);
  tiny_gradient(&t, 0.5, true);
  const float *halves = t.model.gradient.data;
  for (int64_t i = 0; i < t.model.elements; ++i)
    assert_true(fabsf(halves[i] - whole[i]) <= 1e-5f * (1 + fabsf(whole[i])));
  free(whole);
  tiny_close(&t);
}

/* The unfused pass computes the same loss and gradients, within the rounding of its own order of sums. */
static void unfused_agrees(void **state) {
  (void)state;
  tiny a, b;
  tiny_open(&a, TIGON_F32, false, true);
  tiny_open(&b, TIGON_F32, false, false);
  tiny_scatter(&a);
  tiny_scatter(&b);
  const double fused = tiny_gradient(&a, 1, false), unfused = tiny_gradient(&b, 1, false);
  assert_true(fabs(fused - unfused) <= 1e-5 * fabs(fused));
  for (int64_t i = 0; i < a.model.tensor_count; ++i) {
    const train_tensor *tensor = &a.model.tensors[i];
    const float *x = (const float *)a.model.gradient.data + tensor->offset;
    const float *y = (const float *)b.model.gradient.data + tensor->offset;
    double largest = 0, error = 0;
    for (int64_t j = 0; j < tensor->count; ++j) {
      largest = fmax(largest, fabs((double)x[j]));
      error = fmax(error, fabs((double)x[j] - (double)y[j]));
    }
    if (!(error <= 1e-5 * largest)) fail_msg("tensor %d: error %g, largest %g", (int)i, error, largest);
  }
  tiny_close(&a);
  tiny_close(&b);
}

/* bf16 activations: the same gradient within a few per cent of its norm. */
static void bf16_is_near(void **state) {
  (void)state;
  for (int fused = 0; fused < 2; ++fused) {
    tiny a, b;
    tiny_open(&a, TIGON_F32, false, true);
    tiny_open(&b, TIGON_BF16, false, fused);
    tiny_scatter(&a);
    tiny_scatter(&b);
    const double wide = tiny_gradient(&a, 1, false), narrow = tiny_gradient(&b, 1, false);
    assert_true(fabs(wide - narrow) <= 0.02 * fabs(wide));
    const float *x = a.model.gradient.data, *y = b.model.gradient.data;
    double square = 0, error = 0;
    for (int64_t i = 0; i < a.model.elements; ++i) {
      square += (double)x[i] * (double)x[i];
      error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    }
    if (!(sqrt(error) <= 0.05 * sqrt(square))) fail_msg("fused %d: error %g of %g", fused, sqrt(error), sqrt(square));
    tiny_close(&a);
    tiny_close(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(untied), cmocka_unit_test(tied), cmocka_unit_test(accumulates),
                                     cmocka_unit_test(unfused_agrees), cmocka_unit_test(bf16_is_near)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
