/* Text token by token, with kept keys and values, is what the whole forward pass would say. */
#include <math.h>

#include "sample.h"
#include "tiny.h"

/* The likeliest token after position `at` of the first sequence, by the forward pass over all of it. */
static int32_t likeliest(tiny *t, int at) {
  double loss = 0;
  tiny_good(train_pass_loss(&t->pass, t->tokens, t->labels, &loss, &t->error), &t->error);
  const train_config *c = &t->model.config;
  const float *y = (const float *)t->pass.y.data + at * c->hidden;
  const float *head = train_weight(&t->model, train_head_index(c)).data;
  int32_t best = 0;
  double most = -INFINITY;
  for (int32_t v = 0; v < c->vocab; ++v) {
    double logit = 0;
    for (int64_t h = 0; h < c->hidden; ++h) logit += (double)y[h] * (double)head[v * c->hidden + h];
    if (logit > most) most = logit, best = v;
  }
  return best;
}

static void is_the_forward_pass(void **state) {
  (void)state;
  for (int tied = 0; tied < 2; ++tied) {
    tiny t;
    int32_t drawn[6];
    tiny_open(&t, TIGON_F32, tied, true);
    tiny_scatter(&t);
    const train_sampling greedy = {.temperature = 0};
    tiny_good(train_sample(&t.memory, &t.model, &greedy, t.tokens, 3, 5, drawn, &t.error), &t.error);
    for (int i = 0; i < 5; ++i) {
      assert_int_equal(drawn[i], likeliest(&t, 2 + i));
      t.tokens[3 + i] = drawn[i];
    }
    tiny_close(&t);
  }
}

/* More tokens than the model has positions, and a prompt that is longer than them. */
static void goes_on(void **state) {
  (void)state;
  tiny t;
  int32_t prompt[20], drawn[50], again[50], other[50];
  tiny_open(&t, TIGON_F32, false, true);
  tiny_scatter(&t);
  for (int i = 0; i < 20; ++i) prompt[i] = i % 19;
  train_sampling how = {.temperature = 1, .top_k = 0, .seed = 5};
  tiny_good(train_sample(&t.memory, &t.model, &how, prompt, 20, 50, drawn, &t.error), &t.error);
  tiny_good(train_sample(&t.memory, &t.model, &how, prompt, 20, 50, again, &t.error), &t.error);
  assert_memory_equal(drawn, again, sizeof drawn);
  for (int i = 0; i < 50; ++i) assert_true(drawn[i] >= 0 && drawn[i] < 19);
  how.seed = 6;
  tiny_good(train_sample(&t.memory, &t.model, &how, prompt, 20, 50, other, &t.error), &t.error);
  assert_memory_not_equal(drawn, other, sizeof drawn);
  tiny_close(&t);
}

/* With top_k = 1 any temperature is greedy. */
static void top_k(void **state) {
  (void)state;
  tiny t;
  int32_t greedy[4], drawn[4];
  tiny_open(&t, TIGON_F32, false, true);
  tiny_scatter(&t);
  const train_sampling cold = {.temperature = 0}, one = {.temperature = 5, .top_k = 1, .seed = 1};
  tiny_good(train_sample(&t.memory, &t.model, &cold, t.tokens, 3, 4, greedy, &t.error), &t.error);
  tiny_good(train_sample(&t.memory, &t.model, &one, t.tokens, 3, 4, drawn, &t.error), &t.error);
  assert_memory_equal(greedy, drawn, sizeof greedy);
  tiny_close(&t);
}

static void refuses_nan(void **state) {
  (void)state;
  tiny t;
  int32_t drawn[4];
  tiny_open(&t, TIGON_F32, false, true);
  ((float *)train_weight(&t.model, train_final_norm_index(&t.model.config)).data)[3] = NAN;
  const train_sampling cold = {.temperature = 0};
  assert_false(train_sample(&t.memory, &t.model, &cold, t.tokens, 3, 4, drawn, &t.error));
  assert_string_equal(t.error.text, "the model's logits are not numbers, so no text can be drawn");
  tiny_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(is_the_forward_pass), cmocka_unit_test(goes_on),
                                     cmocka_unit_test(top_k), cmocka_unit_test(refuses_nan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
