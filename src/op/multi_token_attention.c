#include <tigon/op/multi_token_attention.h>

#include <inttypes.h>

#include "op/front.h"

/* What o has depends on the window; the shapes here are those of one with 3 taps and a padding of 1. */
#define WINDOW                                                                                                        \
  CHOICE(place, TIGON_MTA_PRE), FLAG(sparse), NUMBER(groups, 0, MOST), NUMBER(stride_h, 0, MOST),                     \
      NUMBER(stride_w, 0, MOST), NUMBER(padding_h, 0, MOST), NUMBER(padding_w, 0, MOST), NUMBER(dilation_h, 0, MOST), \
      NUMBER(dilation_w, 0, MOST)
enum { MOST = 1 << 16 };

#define A tigon_multi_token_attention_fwd_args
static const tigon_field fwd[] = {
    IN(scores, "bhtt", SAME, ROWS),
    IN(weight, "?nh33", FLOAT_GIVES_SECOND, DENSE),
    MAY(bias, "n", SECOND_OR_F32, DENSE),
    OUT(o, "?bnpk", SAME, ROWS, NULL),
    WANT(stat, "?bcv", F32, DENSE, NULL),
    WINDOW,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_multi_token_attention_bwd_args
static const tigon_field bwd[] = {
    IN(scores, "bhtt", SAME, ROWS),
    IN(d_o, "?bnpk", SAME, ROWS),
    IN(weight, "?nh33", FLOAT_GIVES_SECOND, DENSE),
    IN(stat, "?bcv", F32, DENSE),
    OUT(dscores, "bhtt", SAME, ROWS, NULL),
    WANT(dweight, "?nh33", SECOND_OR_F32, DENSE, NULL),
    WANT(dbias, "n", SECOND_OR_F32, DENSE, NULL),
    WINDOW,
    FLAG(accumulate_dweight),
    WORKSPACE,
    RESERVED(reserved),
};

typedef tigon_multi_token_attention_problem problem;

static int64_t or_one(int64_t number) { return number > 0 ? number : 1; }

#define WINDOW_OF(side, dim)                                                                        \
  {                                                                                                 \
    .taps = a->weight.shape[dim], .stride = or_one(a->stride_##side), .padding = a->padding_##side, \
    .dilation = or_one(a->dilation_##side)                                                          \
  }

/* Members that both problems have, of arguments whose o is called `of_o`. */
#define COMMON                                                                                                   \
  .dtype = a->scores.dtype, .batch = a->scores.shape[0], .in = a->scores.shape[1], .tokens = a->scores.shape[2], \
  .out = a->weight.shape[0], .groups = or_one(a->groups), .h = WINDOW_OF(h, 2), .w = WINDOW_OF(w, 3),            \
  .weight = tigon_vector_of(&a->weight), .stat = tigon_vector_of(&a->stat), .workspace = a->workspace,           \
  .pre = a->place == TIGON_MTA_PRE, .sparse = a->sparse != 0

static tigon_status check_groups(tigon_context *context, const problem *p) {
  if (p->in % p->groups != 0)
    return tigon_refuse(context, "groups is %" PRId64 ", must divide %" PRId64 " (scores.shape[1])", p->groups, p->in);
  if (p->out % p->groups == 0) return TIGON_OK;
  return tigon_refuse(context, "groups is %" PRId64 ", must divide %" PRId64 " (weight.shape[0])", p->groups, p->out);
}

/* One direction: taps, padding, and so many places that there is one. */
static tigon_status check_window(tigon_context *context, const tigon_window *w, char side, int dim, int64_t tokens) {
  const int64_t span = tigon_window_span(w);
  if (w->taps < 1 || w->taps > TIGON_MTA_TAPS)
    return tigon_refuse(context, "weight.shape[%d] is %" PRId64 ", must be 1 to %d", dim, w->taps, TIGON_MTA_TAPS);
  if (w->padding > span)
    return tigon_refuse(context, "padding_%c is %" PRId64 ", must be 0 to %" PRId64 " (a window less one)", side,
                        w->padding, span);
  if (tokens == 0 || tigon_window_places(w, tokens) > 0) return TIGON_OK;
  return tigon_refuse(context,
                      "a window of weight.shape[%d] reaches over %" PRId64 " elements, must over %" PRId64
                      " at most (padded scores)",
                      dim, span + 1, tokens + 2 * w->padding);
}

static tigon_status check_plane(tigon_context *context, const char *name, const tigon_tensor *t, const problem *p) {
  TIGON_TRY(tigon_check_ndim(context, name, t, 4));
  TIGON_TRY(tigon_check_extent(context, name, t, 0, p->batch, "scores.shape[0]"));
  TIGON_TRY(tigon_check_extent(context, name, t, 1, p->out, "weight.shape[0]"));
  TIGON_TRY(tigon_check_extent(context, name, t, 2, p->rows, "places of a window"));
  return tigon_check_extent(context, name, t, 3, p->cols, "places of a window");
}

/* Fills in rows and columns of o. */
static tigon_status check_shapes(tigon_context *context, const tigon_tensor *weight, const tigon_tensor *dweight,
                                 const char *o_name, const tigon_tensor *o, const tigon_tensor *stat, problem *p) {
  TIGON_TRY(check_groups(context, p));
  TIGON_TRY(tigon_check_extent(context, "weight", weight, 1, p->in / p->groups, "channels of a group of scores"));
  TIGON_TRY(tigon_check_same_shape(context, "dweight", dweight, "weight", weight));
  TIGON_TRY(check_window(context, &p->h, 'h', 2, p->tokens));
  TIGON_TRY(check_window(context, &p->w, 'w', 3, p->tokens));
  p->rows = p->tokens > 0 ? tigon_window_places(&p->h, p->tokens) : 0;
  p->cols = p->tokens > 0 ? tigon_window_places(&p->w, p->tokens) : 0;
  TIGON_TRY(check_plane(context, o_name, o, p));
  TIGON_TRY(tigon_check_ndim(context, "stat", stat, 3));
  TIGON_TRY(tigon_check_extent(context, "stat", stat, 0, p->batch, "scores.shape[0]"));
  TIGON_TRY(tigon_check_extent(context, "stat", stat, 1, p->pre ? p->out : p->in,
                               p->pre ? "weight.shape[0]" : "scores.shape[1]"));
  return tigon_check_extent(context, "stat", stat, 2, p->pre ? p->rows : p->tokens,
                            p->pre ? "places of a window" : "scores.shape[2]");
}

/* Strides of 0 reach nowhere, but what lies in a workspace would. */
static tigon_status check_numbers(tigon_context *context, const problem *p) {
  const double rows = (double)(p->tokens + 2 * tigon_window_span(&p->h) + TIGON_MTA_TAPS);
  const double cols = (double)(p->tokens + 2 * tigon_window_span(&p->w) + TIGON_MTA_TAPS);
  if ((double)p->batch * ((double)p->in + (double)p->out + 1) * rows * cols < 0x1p58) return TIGON_OK;
  return tigon_refuse(context, "scores has more elements than a workspace can hold numbers for");
}

/* norm() takes a number off that all of a row share. */
static tigon_status check_bias(tigon_context *context, const char *name, const tigon_tensor *bias, const problem *p) {
  return p->pre && tigon_present(bias) ? tigon_refuse(context, "%s is given, must be absent with place 1 (PRE)", name)
                                       : TIGON_OK;
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_multi_token_attention_fwd_args *a, problem *p,
                                size_t *bytes) {
  TIGON_TRY(tigon_check_ndim(context, "weight", &a->weight, 4));
  *p = (problem){COMMON, .bias = tigon_vector_of(&a->bias)};
  const tigon_tensor none = {0};
  TIGON_TRY(check_shapes(context, &a->weight, &none, "o", &a->o, &a->stat, p));
  TIGON_TRY(check_bias(context, "bias", &a->bias, p));
  TIGON_TRY(check_numbers(context, p));
  /* Three leading dimensions are never too many. */
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->scores, &p->s})); /* GCOVR_EXCL_BR_LINE so */
  TIGON_TRY(TIGON_COLLAPSE(context, &p->out_space, {&a->o, &p->o}));  /* GCOVR_EXCL_BR_LINE so */
  return TIGON_ASK_WORKSPACE(context, multi_token_attention_fwd, p->dtype, p, bytes);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_multi_token_attention_bwd_args *a, problem *p,
                                size_t *bytes) {
  TIGON_TRY(tigon_check_ndim(context, "weight", &a->weight, 4));
  *p = (problem){COMMON, .dweight = tigon_vector_of(&a->dweight), .dbias = tigon_vector_of(&a->dbias),
                 .accumulate = a->accumulate_dweight != 0};
  TIGON_TRY(check_shapes(context, &a->weight, &a->dweight, "d_o", &a->d_o, &a->stat, p));
  TIGON_TRY(check_bias(context, "dbias", &a->dbias, p));
  TIGON_TRY(check_numbers(context, p));
  /* Three leading dimensions are never too many. */
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->scores, &p->s}, {&a->dscores, &p->ds})); /* GCOVR_EXCL_BR_LINE so */
  TIGON_TRY(TIGON_COLLAPSE(context, &p->out_space, {&a->d_o, &p->o}));                       /* GCOVR_EXCL_BR_LINE so */
  return TIGON_ASK_WORKSPACE(context, multi_token_attention_bwd, p->dtype, p, bytes);
}

TIGON_ENTRY_WITH_WORKSPACE(multi_token_attention, fwd, fwd, prepare_fwd, p.out_space.rows == 0)
TIGON_ENTRY_WITH_WORKSPACE(multi_token_attention, bwd, bwd, prepare_bwd, p.space.rows == 0 && !tigon_mta_sums(&p))
