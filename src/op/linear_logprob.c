/* The log-probability of labels is minus a cross entropy: this front has the arguments of that one's fused head, which
 * works them off, with what is kept between forward and backward. */
#include <tigon/op/linear_logprob.h>

#include "op/fused_linear_cross_entropy.h"

#define HEAD                                                                                                   \
  IN(hidden, "*h", SAME, ROWS), IN(weight, "vh", SAME_GIVES_SECOND, ROWS), MAY(bias, "v", SAME_OR_F32, DENSE), \
      IN(labels, "@", INDEX('v'), DENSE)
#define NUMBERS                                                                                             \
  WANT(error, "1 a scalar", I32, DENSE, NULL), FLAG(has_ignore_index), ANY(ignore_index), OR_ZERO(softcap), \
      OR_ZERO(temperature), FLAG(softcap_first), FLAG(logits_in_f32)

#define A tigon_linear_logprob_fwd_args
static const tigon_field fwd[] = {
    HEAD,
    OUT(logprob, "@", F32, DENSE, NULL),
    WANT(lse, "@", F32, DENSE, NULL),
    WANT(entropy, "@", F32, DENSE, NULL),
    WANT(argmax, "@", I64, DENSE, NULL),
    WANT(correct, "1 a scalar", I64, DENSE, NULL),
    WANT(cache, "kv", SAME_OR_F32, ROWS, NULL),
    WANT(unit, "*h", SAME, ROWS, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(linear_logprob, fwd, fwd);
#undef A

#define A tigon_linear_logprob_bwd_args
static const tigon_field bwd[] = {
    HEAD,
    IN(lse, "@", F32, DENSE),
    MAY(entropy, "@", F32, DENSE),
    MAY(cache, "kv", SAME_OR_F32, ROWS),
    IN(dlogprob, "@", F32, DENSE),
    MAY(dentropy, "@", F32, DENSE),
    WANT(dhidden, "*h", SAME, ROWS, "hidden"),
    WANT(dweight, "vh", SECOND_OR_F32, ROWS, NULL),
    WANT(dbias, "v", SECOND_OR_F32, DENSE, NULL),
    NUMBERS,
    FLAG(accumulate_dweight),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(linear_logprob, bwd, bwd);

typedef tigon_fused_linear_cross_entropy_args head_args;

/* What both directions have alike; a query has no workspace. */
#define HEAD_ARGS(query)                                                          \
  .hidden = a->hidden, .weight = a->weight, .bias = a->bias, .labels = a->labels, \
  .options = {.has_ignore_index = a->has_ignore_index,                            \
              .ignore_index = a->ignore_index,                                    \
              .softcap = a->softcap,                                              \
              .temperature = a->temperature,                                      \
              .softcap_first = a->softcap_first,                                  \
              .reduction = TIGON_REDUCTION_NONE},                                 \
  .logits_in_f32 = a->logits_in_f32, .workspace = (query) ? NULL : a->workspace, .workspace_bytes = a->workspace_bytes

/* A cache has logits as they are. */
static tigon_status check_cache(tigon_context *context, const tigon_tensor *cache, const tigon_tensor *hidden,
                                bool in_f32) {
  const tigon_dtype must = in_f32 ? TIGON_F32 : hidden->dtype;
  if (!tigon_present(cache) || cache->dtype == must) return TIGON_OK;
  return tigon_refuse(context, "cache.dtype is %s, must be %s (%s)", tigon_dtype_name(cache->dtype),
                      tigon_dtype_name(must), in_f32 ? "logits_in_f32" : "hidden.dtype");
}

static head_more more_of(const tigon_tensor *cache, bool knows) {
  return (head_more){.negated = true,
                     .knows = knows,
                     .cache = cache->data,
                     .cached = tigon_present(cache) ? cache->shape[0] : 0,
                     .cache_pitch = cache->strides[0]};
}

/* A call, or with `least` a query, whose description holds. */
static tigon_status forward(tigon_context *context, const tigon_linear_logprob_fwd_args *a, size_t *least,
                            size_t *good) {
  const head_more more = more_of(&a->cache, false);
  const head_args head = {HEAD_ARGS(least),
                          .out = {.token_loss = a->logprob,
                                  .lse = a->lse,
                                  .entropy = a->entropy,
                                  .argmax = a->argmax,
                                  .correct = a->correct,
                                  .error = a->error},
                          .dhidden = a->unit};
  TIGON_TRY(check_cache(context, &a->cache, &a->hidden, a->logits_in_f32));
  return tigon_head_call(context, &head, true, &more, least, good);
}

static tigon_status backward(tigon_context *context, const tigon_linear_logprob_bwd_args *a, size_t *least,
                             size_t *good) {
  const head_more more = more_of(&a->cache, true);
  const head_args head = {HEAD_ARGS(least),      .out = {.lse = a->lse, .entropy = a->entropy, .error = a->error},
                          .dloss = a->dlogprob,  .dentropy = a->dentropy,
                          .dhidden = a->dhidden, .dweight = a->dweight,
                          .dbias = a->dbias,     .accumulate_dweight = a->accumulate_dweight};
  if (tigon_present(&a->dentropy) && !tigon_present(&a->entropy))
    return tigon_refuse(context, "entropy is absent, must be there with dentropy");
  TIGON_TRY(check_cache(context, &a->cache, &a->hidden, a->logits_in_f32));
  return tigon_head_call(context, &head, false, &more, least, good);
}

/* tigon_linear_logprob_<entry>() and its query. */
#define ENTRY(entry, run)                                                                                              \
  tigon_status tigon_linear_logprob_##entry(tigon_context *context, const tigon_linear_logprob_##entry##_args *args) { \
    TIGON_KEEP_CALLER_STATE;                                                                                           \
    tigon_linear_logprob_##entry##_args a;                                                                             \
    TIGON_TRY(tigon_check_entry(context, &tigon_linear_logprob_##entry##_schema, args, &a, false));                    \
    return run(context, &a, NULL, NULL);                                                                               \
  }                                                                                                                    \
  tigon_status tigon_linear_logprob_##entry##_workspace(                                                               \
      tigon_context *context, const tigon_linear_logprob_##entry##_args *args, size_t *minimum, size_t *recommended) { \
    TIGON_KEEP_CALLER_STATE;                                                                                           \
    tigon_linear_logprob_##entry##_args a;                                                                             \
    size_t least;                                                                                                      \
    TIGON_TRY(tigon_check_entry(context, &tigon_linear_logprob_##entry##_schema, args, &a, true));                     \
    TIGON_TRY(run(context, &a, &least, recommended));                                                                  \
    if (minimum) *minimum = least;                                                                                     \
    return TIGON_OK;                                                                                                   \
  }
ENTRY(fwd, forward)
ENTRY(bwd, backward)
