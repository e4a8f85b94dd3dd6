/* The front of a preference loss of a head: preference_loss, which adds up the tokens of sequences first, is what the chunks of
 * fused_linear_cross_entropy have in the middle. */
#include <tigon/op/fused_linear_preference.h>

#include "op/fused_linear_cross_entropy.h"
#include "op/preference_loss.h"

#define A tigon_fused_linear_preference_fwd_args
static const tigon_field fwd[] = {
    HEAD_TENSORS,
    MAY(segments, "?", INTEGER, DENSE),
    MAY(ref, "?n", F32, DENSE),
    MAY(desirable, "?n", INTEGER, DENSE),
    MAY(shift, "?1", F32, DENSE),
    MAY(denominator, "1 one number", F32, DENSE),
    MAY(dloss, "1 a scalar", F32, DENSE),
    OUT(loss, "1 a scalar", F32, DENSE, NULL),
    OUT(logprob, "@", F32, DENSE, NULL),
    WANT(logps, "?n", F32, DENSE, NULL),
    WANT(pair_loss, "?g", F32, DENSE, NULL),
    WANT(rewards, "?n", F32, DENSE, NULL),
    WANT(accuracy, "1 a scalar", F32, DENSE, NULL),
    WANT(margin, "1 a scalar", F32, DENSE, NULL),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    HEAD_GRADIENTS,
    PREFERENCE_NUMBERS,
    FLAG(means),
    FLAG(nll),
    HEAD_NUMBERS,
    FINITE(grad_scale),
    FLAG(accumulate_dweight),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(fused_linear_preference, fwd, fwd);

/* The scratch: counts, sums and gradients of sequences. */
static tigon_status run_middle(const fused *f, const void *problem) {
  tigon_preference_loss_fwd_problem p = *(const tigon_preference_loss_fwd_problem *)problem;
  const bool means = p.counts.dtype != TIGON_DTYPE_NONE;
  p.sums_of = (int64_t *)(void *)f->scratch;
  p.dlogps = (float *)(void *)(p.sums_of + p.sequences);
  if (!p.sums) p.sums = p.dlogps + p.sequences;
  p.logps = p.sums;
  if (means) p.counts.data = p.sums_of;
  if (p.nll_sequences > 0) p.nll_logps = p.sums;
  p.nll_counts = (tigon_vector){p.sums_of, TIGON_I64};
  p.token_logprob = f->loss.token_loss;
  p.dtoken_logprob = f->dlogprob;
  return TIGON_CALL_FOUND_SLOT(f->context, preference_loss_fwd, p.dtype, &p);
}

static tigon_status check_vectors(tigon_context *context, const A *a, const tigon_sequences *of, int64_t items) {
  const struct {
    const char *name;
    const tigon_tensor *tensor;
  } each[] = {{"ref", &a->ref}, {"desirable", &a->desirable}, {"logps", &a->logps}, {"rewards", &a->rewards}};
  for (int i = 0; i < TIGON_COUNT(each); ++i)
    TIGON_TRY(tigon_check_of_sequences(context, each[i].name, each[i].tensor, false, of));
  return tigon_check_vector(context, "pair_loss", &a->pair_loss, items, "pairs or sequences");
}

/* A call, or with `least` a query, whose description holds. */
static tigon_status forward(tigon_context *context, const A *a, size_t *least, size_t *good) {
  tigon_preference_loss_fwd_problem p;
  const bool pairs = a->options.kind < TIGON_PREFERENCE_KTO;
  tigon_sequences of = {.tokens = tigon_tensor_count(&a->labels), .tokens_name = "rows of hidden"};
  TIGON_TRY(tigon_check_sequences(context, &a->segments, &a->hidden, &of));
  const tigon_preference_args args = {&a->options, of.count, of.count_name, &a->desirable,
                                      "desirable", &a->ref,  &a->shift};
  TIGON_TRY(tigon_check_preference(context, &args, &p));
  if (a->nll && !pairs) return tigon_refuse(context, "nll is 1, must be 0 with an options.kind of single sequences");
  TIGON_TRY(check_vectors(context, a, &of, p.items));
  TIGON_TRY(TIGON_REQUIRE_SLOT(context, preference_loss_fwd, p.dtype));
  p.mask = (tigon_counted){tigon_vector_of(&a->labels), a->has_ignore_index ? a->ignore_index : -1, a->weight.shape[0]};
  p.segments = of.segments;
  p.tokens = of.tokens;
  p.length = of.length;
  p.counts.dtype = a->means ? TIGON_I64 : TIGON_DTYPE_NONE;
  p.nll_sequences = a->nll ? p.items : 0;
  p.error_flag = context->queue.error_flag;
  p.denominator = a->denominator.data;
  p.dloss = a->dloss.data;
  p.loss = a->loss.data;
  p.sums = a->logps.data;
  p.pair_loss = a->pair_loss.data;
  p.rewards = a->rewards.data;
  p.accuracy = a->accuracy.data;
  p.margin = a->margin.data;
  const head_middle middle = {.run = run_middle,
                              .problem = &p,
                              .scratch = (size_t)of.count * (sizeof *p.sums_of + sizeof *p.dlogps + sizeof *p.sums),
                              .of_sequences = !pairs,
                              .of_pairs = pairs,
                              .of = &of};
  const head_args head = {HEAD_ARGS(least), .out = {.token_loss = a->logprob, .error = a->error},
                          .grad_scale = a->grad_scale, HEAD_GRADIENT_ARGS};
  return tigon_head_call(context, &head, true, &(head_more){.negated = true, .middle = &middle}, least, good);
}

TIGON_CALL_AND_RANGE_QUERY(fused_linear_preference, fwd, forward)
