/* The log-probability of labels is minus a cross entropy. So this front passes its arguments to the fused head of cross entropy,
 * with what is kept between forward and backward. */
#include <tigon/op/linear_logprob.h>

#include <inttypes.h>

#include "op/fused_linear_cross_entropy.h"

#define SHARD_NUMBERS AT_LEAST(vocab, 0), AT_LEAST(vocab_begin, 0)

#define A tigon_linear_logprob_fwd_args
static const tigon_field fwd[] = {
    HEAD_TENSORS,
    WANT(logprob, "@", F32, DENSE, NULL),
    WANT(stats, "*5", F32, DENSE, NULL),
    WANT(lse, "@", F32, DENSE, NULL),
    WANT(entropy, "@", F32, DENSE, NULL),
    WANT(argmax, "@", I64, DENSE, NULL),
    WANT(correct, "1 a scalar", I64, DENSE, NULL),
    WANT(cache, "kv", SAME_OR_F32, ROWS, NULL),
    WANT(unit, "*h", SAME, ROWS, NULL),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    HEAD_NUMBERS,
    SHARD_NUMBERS,
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
    HEAD_GRADIENTS,
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    HEAD_NUMBERS,
    FLAG(accumulate_dweight),
    SHARD_NUMBERS,
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

/* The shard that `vocab` and `begin` say, if they do. */
static tigon_status check_vocab(tigon_context *context, const tigon_tensor *weight, int64_t begin, int64_t vocab) {
  if (vocab == 0 && begin != 0)
    return tigon_refuse(context, "vocab_begin is %" PRId64 ", must be 0 without vocab", begin);
  return vocab == 0 ? TIGON_OK : tigon_check_shard(context, (tigon_dim){"weight", weight, 0}, begin, "vocab", vocab);
}

/* A shard has stats alone, from which the numbers of all shards are merged. */
static tigon_status check_outputs(tigon_context *context, const tigon_linear_logprob_fwd_args *a) {
  const char *names[] = {"logprob", "lse", "entropy", "argmax", "correct", "unit"};
  const tigon_tensor *each[] = {&a->logprob, &a->lse, &a->entropy, &a->argmax, &a->correct, &a->unit};
  if (a->vocab == 0) {
    if (!tigon_present(&a->logprob)) return tigon_refuse(context, "logprob is absent, must be there without vocab");
    if (tigon_present(&a->stats)) return tigon_refuse(context, "stats is there, must be absent without vocab");
    return TIGON_OK;
  }
  if (!tigon_present(&a->stats)) return tigon_refuse(context, "stats is absent, must be there with vocab");
  for (int i = 0; i < TIGON_COUNT(each); ++i)
    if (tigon_present(each[i])) return tigon_refuse(context, "%s is there, must be absent with vocab", names[i]);
  return TIGON_OK;
}

static head_more more_of(const tigon_tensor *cache, bool knows, int64_t vocab, int64_t begin) {
  return (head_more){.negated = true,
                     .knows = knows,
                     .cache = cache->data,
                     .vocab = vocab,
                     .vocab_begin = begin,
                     .cached = tigon_present(cache) ? cache->shape[0] : 0,
                     .cache_pitch = cache->strides[0]};
}

/* A call, or with `least` a query, whose description holds. */
static tigon_status forward(tigon_context *context, const tigon_linear_logprob_fwd_args *a, size_t *least,
                            size_t *good) {
  head_more more = more_of(&a->cache, false, a->vocab, a->vocab_begin);
  const head_args head = {HEAD_ARGS(least),
                          .out = {.token_loss = a->logprob,
                                  .lse = a->lse,
                                  .entropy = a->entropy,
                                  .argmax = a->argmax,
                                  .correct = a->correct,
                                  .error = a->error},
                          .dhidden = a->unit};
  TIGON_TRY(check_outputs(context, a));
  TIGON_TRY(check_vocab(context, &a->weight, a->vocab_begin, a->vocab));
  TIGON_TRY(check_cache(context, &a->cache, &a->hidden, a->logits_in_f32));
  more.stats = a->stats.data;
  return tigon_head_call(context, &head, a->vocab == 0, &more, least, good); /* a shard has no loss */
}

static tigon_status backward(tigon_context *context, const tigon_linear_logprob_bwd_args *a, size_t *least,
                             size_t *good) {
  const head_more more = more_of(&a->cache, true, a->vocab, a->vocab_begin);
  const head_args head = {HEAD_ARGS(least), .out = {.lse = a->lse, .entropy = a->entropy, .error = a->error},
                          .dloss = a->dlogprob, .dentropy = a->dentropy, HEAD_GRADIENT_ARGS};
  if (tigon_present(&a->dentropy) && !tigon_present(&a->entropy))
    return tigon_refuse(context, "entropy is absent, must be there with dentropy");
  TIGON_TRY(check_vocab(context, &a->weight, a->vocab_begin, a->vocab));
  TIGON_TRY(check_cache(context, &a->cache, &a->hidden, a->logits_in_f32));
  return tigon_head_call(context, &head, false, &more, least, good);
}

TIGON_CALL_AND_RANGE_QUERY(linear_logprob, fwd, forward)
TIGON_CALL_AND_RANGE_QUERY(linear_logprob, bwd, backward)
