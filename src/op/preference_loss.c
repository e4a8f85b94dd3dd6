#include "op/preference_loss.h"

#define A tigon_preference_loss_fwd_args
static const tigon_field fwd[] = {
    IN(logps, "n", F32, DENSE),
    MAY(ref, "n", F32, DENSE),
    MAY(counts, "n", INTEGER, DENSE),
    MAY(labels, "n", INTEGER, DENSE),
    MAY(shift, "?1", F32, DENSE),
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
    PREFERENCE_NUMBERS,
    RESERVED(reserved),
};

/* Is the tensor there just where the kind has it, or may have it? */
static tigon_status check_kind(tigon_context *context, const tigon_preference_args *a) {
  const tigon_preference_kind kind = a->options->kind;
  const bool pairs = kind < TIGON_PREFERENCE_KTO, shifts = !pairs || kind == TIGON_PREFERENCE_BCO_PAIR;
  if (pairs && tigon_present(a->labels))
    return tigon_refuse(context, "%s is there, must be absent with an options.kind of pairs", a->labels_name);
  if (!pairs && !tigon_present(a->labels))
    return tigon_refuse(context, "%s is absent, must be there with an options.kind of single sequences",
                        a->labels_name);
  if (kind == TIGON_PREFERENCE_ORPO && tigon_present(a->ref))
    return tigon_refuse(context, "ref is there, must be absent with options.kind ORPO");
  if (!shifts && tigon_present(a->shift))
    return tigon_refuse(context, "shift is there, must be absent but with options.kind BCO_PAIR, KTO or BCO");
  if (pairs && a->sequences % 2)
    return tigon_refuse(context, "%s is %lld, must be even with an options.kind of pairs", a->sequences_name,
                        (long long)a->sequences);
  return TIGON_OK;
}

tigon_status tigon_check_preference(tigon_context *context, const tigon_preference_args *a,
                                    tigon_preference_loss_fwd_problem *p) {
  const tigon_preference_loss_options *o = a->options;
  const bool pairs = o->kind < TIGON_PREFERENCE_KTO, exo = o->kind == TIGON_PREFERENCE_EXO_PAIR;
  TIGON_TRY(check_kind(context, a));
  const int64_t items = pairs ? a->sequences / 2 : a->sequences;
  const int64_t shifts = tigon_present(a->shift) ? tigon_tensor_count(a->shift) : 0;
  if (tigon_present(a->shift) && (a->shift->ndim != 1 || shifts != 1))
    TIGON_TRY(tigon_check_vector(context, "shift", a->shift, items, pairs ? "pairs, or 1" : "sequences, or 1"));
  *p = (tigon_preference_loss_fwd_problem){
      .dtype = TIGON_F32,
      .kind = o->kind,
      .sequences = a->sequences,
      .items = items,
      .ref = a->ref->data,
      .labels = tigon_vector_of(a->labels),
      .shift = shifts > 0 ? a->shift->data : NULL,
      .shifts = shifts,
      .beta = tigon_number_or(o->beta, 0.1),
      .label_smoothing = tigon_number_or(o->label_smoothing, exo ? 1e-3 : 0),
      .gamma = (float)o->gamma,
      .tau = tigon_number_or(o->tau, 0.05),
      .nll_weight = tigon_number_or(o->nll_weight, 1),
      .weight = {tigon_number_or(o->undesirable_weight, 1), tigon_number_or(o->desirable_weight, 1)},
  };
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

static tigon_status prepare_fwd(tigon_context *context, const A *a, tigon_preference_loss_fwd_problem *p) {
  const tigon_preference_args of = {&a->options, a->logps.shape[0], "logps.shape[0]", &a->labels,
                                    "labels",    &a->ref,           &a->shift};
  TIGON_TRY(tigon_check_preference(context, &of, p));
  TIGON_TRY(check_nll(context, a));
  TIGON_TRY(tigon_check_vector(context, "pair_loss", &a->pair_loss, p->items,
                               p->items < p->sequences ? "half of logps.shape[0]" : "logps.shape[0]"));
  p->logps = a->logps.data;
  p->counts = tigon_vector_of(&a->counts);
  p->denominator = a->denominator.data;
  p->nll_sequences = tigon_present(&a->nll_logps) ? a->nll_logps.shape[0] : 0;
  p->nll_logps = a->nll_logps.data;
  p->nll_counts = tigon_vector_of(&a->nll_counts);
  p->loss = a->loss.data;
  p->pair_loss = a->pair_loss.data;
  p->rewards = a->rewards.data;
  p->dlogps = a->dlogps.data;
  p->dnll_logps = a->dnll_logps.data;
  p->accuracy = a->accuracy.data;
  p->margin = a->margin.data;
  return TIGON_OK;
}

/* Without sequences the numbers of the whole call are written still. */
TIGON_ENTRY(preference_loss, fwd, fwd, prepare_fwd, false)
