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

/* Logits by kept keys and values, fed in pieces of any length, are those of one pass over all tokens. */
static void cache_is_the_whole(void **state) {
  (void)state;
  for (int dtype = 0; dtype < 2; ++dtype) {
    tiny t;
    train_decoder d;
    float whole[19], pieces[19];
    double once = 0, apart = 0, part = 0;
    tiny_open(&t, dtype ? TIGON_BF16 : TIGON_F32, false, true);
    tiny_scatter(&t);
    tiny_good(train_decoder_create(&t.memory, &t.model, TINY_SEQ, TINY_SEQ, &d, &t.error), &t.error);
    tiny_good(train_decoder_feed(&d, t.tokens, TINY_SEQ, 0, &t.error), &t.error);
    tiny_good(train_decoder_logits(&d, whole, &t.error), &t.error);
    tiny_good(train_decoder_loss(&d, t.labels, &once, &t.error), &t.error);
    for (int first = 0, count = 1; first < TINY_SEQ; first += count, count = first < 3 ? 1 : TINY_SEQ - first) {
      tiny_good(train_decoder_feed(&d, t.tokens + first, count, first, &t.error), &t.error);
      tiny_good(train_decoder_loss(&d, t.labels + first, &part, &t.error), &t.error);
      apart += part;
    }
    tiny_good(train_decoder_logits(&d, pieces, &t.error), &t.error);
    const double bound = dtype ? 0.2 : 1e-4;
    for (int v = 0; v < 19; ++v) assert_true(fabs((double)(whole[v] - pieces[v])) < bound);
    assert_true(fabs(once - apart) < TINY_SEQ * bound);
    train_decoder_destroy(&t.memory, &d);
    tiny_close(&t);
  }
}

/* With top_p no token is drawn that the likeliest ones before it make needless, and every other one is. */
static void top_p(void **state) {
  (void)state;
  const float logits[5] = {logf(0.1f), logf(0.4f), logf(0.05f), logf(0.3f), logf(0.15f)};
  const struct {
    double p;
    unsigned drawn; /* bit v: token v */
  } cases[] = {{0.01, 2}, {0.39, 2}, {0.45, 10}, {0.69, 10}, {0.75, 26}, {0.9, 27}, {0.99, 31}, {1, 31}, {0, 31}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    float scratch[10];
    unsigned drawn = 0;
    const train_sampling how = {.temperature = 1, .top_p = cases[i].p};
    for (int n = 0; n < 1000; ++n) drawn |= 1u << train_draw(logits, 5, &how, (n + 0.5) / 1000, scratch);
    assert_int_equal(drawn, cases[i].drawn);
  }
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(is_the_forward_pass), cmocka_unit_test(goes_on), cmocka_unit_test(top_k),
      cmocka_unit_test(cache_is_the_whole),  cmocka_unit_test(top_p),   cmocka_unit_test(refuses_nan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
