/* The log-probability of labels is minus a cross entropy: this front has the arguments of that one's fused head, which
 * works them off, with what is kept between forward and backward. */
#include <tigon/op/linear_logprob.h>

#include "op/fused_linear_cross_entropy.h"

#define A tigon_linear_logprob_fwd_args
static const tigon_field fwd[] = {
    HEAD_TENSORS,
    OUT(logprob, "@", F32, DENSE, NULL),
    WANT(lse, "@", F32, DENSE, NULL),
    WANT(entropy, "@", F32, DENSE, NULL),
    WANT(argmax, "@", I64, DENSE, NULL),
    WANT(correct, "1 a scalar", I64, DENSE, NULL),
    WANT(cache, "kv", SAME_OR_F32, ROWS, NULL),
    WANT(unit, "*h", SAME, ROWS, NULL),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    HEAD_NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(linear_logprob, fwd, fwd);
#undef A

#define A tigon_linear_logprob_bwd_args
static const tigon_field bwd[] = {
    HEAD_TENSORS,
    IN(lse, "@", F32, DENSE),
    MAY(entropy, "@", F32, DENSE),
    MAY(cache, "kv", SAME_OR_F32, ROWS),
    IN(dlogprob, "@", F32, DENSE),
    MAY(dentropy, "@", F32, DENSE),
    WANT(dhidden, "*h", SAME, ROWS, "hidden"),
    WANT(dweight, "vh", SECOND_OR_F32, ROWS, NULL),
    WANT(dbias, "v", SECOND_OR_F32, DENSE, NULL),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    HEAD_NUMBERS,
    FLAG(accumulate_dweight),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(linear_logprob, bwd, bwd);

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

HEAD_ENTRY(linear_logprob, fwd, forward)
HEAD_ENTRY(linear_logprob, bwd, backward)
