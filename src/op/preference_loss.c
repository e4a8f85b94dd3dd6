#include <tigon/op/preference_loss.h>

#include "op/front.h"

#define A tigon_preference_loss_fwd_args
static const tigon_field fwd[] = {
    IN(logps, "n", F32, DENSE),
    MAY(ref, "n", F32, DENSE),
    MAY(counts, "n", INTEGER, DENSE),
    MAY(labels, "n", INTEGER, DENSE),
    MAY(shift, "1 one number", F32, DENSE),
    MAY(denominator, "1 one number", F32, DENSE),
    MAY(nll_logps, "k", F32, DENSE),
    MAY(nll_counts, "k", INTEGER, DENSE),
    OUT(loss, "1 a scalar", F32, DENSE, NULL),
    WANT(pair_loss, "?g", F32, DENSE, NULL),
    WANT(rewards, "n", F32, DENSE, NULL),
    WANT(dlogps, "n", F32, DENSE, NULL),
    WANT(dnll_logps, "k", F32, DENSE, NULL),
    WANT(accuracy, "1 a scalar", F32, DENSE, NULL),
    WANT(margin, "1 a scalar", F32, DENSE, NULL),
    CHOICE(options.kind, TIGON_PREFERENCE_BCO),
    OR_ZERO(options.beta),
    BELOW(options.label_smoothing, 0, 0.5),
    FINITE(options.gamma),
    {NUMBER_AT(A, options.tau), .flags = TIGON_FIELD_OR_ZERO, .low = FLT_MIN, .high = 1},
    OR_ZERO(options.desirable_weight),
    OR_ZERO(options.undesirable_weight),
    OR_ZERO(options.nll_weight),
    RESERVED(options.reserved),
    RESERVED(reserved),
};

/* Is the tensor there just where the kind has it, or may have it? */
static tigon_status check_kind(tigon_context *context, const A *a) {
  const tigon_preference_kind kind = a->options.kind;
  const bool pairs = kind < TIGON_PREFERENCE_KTO, shifts = !pairs || kind == TIGON_PREFERENCE_BCO_PAIR;
  if (pairs && tigon_present(&a->labels))
    return tigon_refuse(context, "labels is there, must be absent with an options.kind of pairs");
  if (!pairs && !tigon_present(&a->labels))
    return tigon_refuse(context, "labels is absent, must be there with an options.kind of single sequences");
  if (kind == TIGON_PREFERENCE_ORPO && tigon_present(&a->ref))
    return tigon_refuse(context, "ref is there, must be absent with options.kind ORPO");
  if (!shifts && tigon_present(&a->shift))
    return tigon_refuse(context, "shift is there, must be absent but with options.kind BCO_PAIR, KTO or BCO");
  if (pairs && a->logps.shape[0] % 2)
    return tigon_refuse(context, "logps.shape[0] is %lld, must be even with an options.kind of pairs",
                        (long long)a->logps.shape[0]);
  return TIGON_OK;
}

static tigon_status check_nll(tigon_context *context, const A *a) {
  if (tigon_present(&a->nll_logps) != tigon_present(&a->nll_counts))
    return tigon_refuse(context, "nll_counts is %s, must be given with nll_logps",
                        tigon_present(&a->nll_counts) ? "there" : "absent");
  if (tigon_present(&a->dnll_logps) && !tigon_present(&a->nll_logps))
    return tigon_refuse(context, "dnll_logps is there, must be absent without nll_logps");
  return TIGON_OK;
}

static float number_or(double given, double otherwise) { return (float)(given != 0 ? given : otherwise); }

static tigon_status prepare_fwd(tigon_context *context, const A *a, tigon_preference_loss_fwd_problem *p) {
  const tigon_preference_loss_options *o = &a->options;
  const bool pairs = o->kind < TIGON_PREFERENCE_KTO, exo = o->kind == TIGON_PREFERENCE_EXO_PAIR;
  const int64_t sequences = a->logps.shape[0], items = pairs ? sequences / 2 : sequences;
  TIGON_TRY(check_kind(context, a));
  TIGON_TRY(check_nll(context, a));
  TIGON_TRY(tigon_check_vector(context, "pair_loss", &a->pair_loss, items,
                               pairs ? "half of logps.shape[0]" : "logps.shape[0]"));
  *p = (tigon_preference_loss_fwd_problem){
      .dtype = TIGON_F32,
      .kind = o->kind,
      .sequences = sequences,
      .items = items,
      .logps = a->logps.data,
      .ref = a->ref.data,
      .counts = tigon_vector_of(&a->counts),
      .labels = tigon_vector_of(&a->labels),
      .shift = a->shift.data,
      .denominator = a->denominator.data,
      .nll_sequences = tigon_present(&a->nll_logps) ? a->nll_logps.shape[0] : 0,
      .nll_logps = a->nll_logps.data,
      .nll_counts = tigon_vector_of(&a->nll_counts),
      .beta = number_or(o->beta, 0.1),
      .label_smoothing = number_or(o->label_smoothing, exo ? 1e-3 : 0),
      .gamma = (float)o->gamma,
      .tau = number_or(o->tau, 0.05),
      .nll_weight = number_or(o->nll_weight, 1),
      .weight = {number_or(o->undesirable_weight, 1), number_or(o->desirable_weight, 1)},
      .loss = a->loss.data,
      .pair_loss = a->pair_loss.data,
      .rewards = a->rewards.data,
      .dlogps = a->dlogps.data,
      .dnll_logps = a->dnll_logps.data,
      .accuracy = a->accuracy.data,
      .margin = a->margin.data,
  };
  return TIGON_OK;
}

/* Without sequences the numbers of the whole call are written still. */
TIGON_ENTRY(preference_loss, fwd, fwd, prepare_fwd, false)
