#include <tigon/op/attn_res.h>

#include "core/blocks.h"
#include "op/front.h"

#define A tigon_attn_res_fwd_args
static const tigon_field fwd[] = {
    IN(v, "n*c", SAME, ROWS),
    BLOCKS(v_blocks),
    IN(q, "c", SAME_OR_F32, DENSE),
    IN(wn, "c", SAME_OR_F32, DENSE),
    OUT(h, "*c", SAME, ROWS, NULL),
    WANT(a, "*n", F32, DENSE, NULL),
    WANT(rstd, "*n", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_attn_res_bwd_args
static const tigon_field bwd[] = {
    IN(v, "n*c", SAME, ROWS),
    BLOCKS(v_blocks),
    IN(dh, "*c", SAME, ROWS),
    IN(q, "c", SAME_OR_F32, DENSE),
    IN(wn, "c", SAME_OR_F32, DENSE),
    IN(a, "*n", F32, DENSE),
    IN(rstd, "*n", F32, DENSE),
    OUT(dv, "n*c", SAME, ROWS, NULL),
    BLOCKS(dv_blocks),
    WANT(dq, "c", SAME_OR_F32, DENSE, NULL),
    WANT(dwn, "c", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dq),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_blocks blocks_of(const tigon_tensor *t, const void *const *at) {
  return (tigon_blocks){.step = t->strides[0], .at = at};
}

/* Strides of 0 reach nowhere, but what lies in a workspace would. */
static tigon_status check_numbers(tigon_context *context, const tigon_attn_res_problem *p) {
  const int64_t most = INT64_MAX >> 20;
  if (p->cols <= most && p->blocks <= most && p->space.rows <= most / (p->blocks > 0 ? p->blocks : 1)) return TIGON_OK;
  return tigon_refuse(context, "v has more elements than a workspace can hold numbers for");
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_attn_res_fwd_args *a, tigon_attn_res_problem *p,
                                size_t *bytes) {
  *p = (tigon_attn_res_problem){TIGON_ROWS_OF(v),
                                .blocks = a->v.shape[0],
                                .v = blocks_of(&a->v, a->v_blocks),
                                .q = tigon_vector_of(&a->q),
                                .wn = tigon_vector_of(&a->wn),
                                .a = a->a.data,
                                .rstd = a->rstd.data,
                                .workspace = a->workspace,
                                .eps = (float)a->eps};
  const tigon_tensor v = tigon_block_view(&a->v);
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&v, &p->v.rows}, {&a->h, &p->h}));
  TIGON_TRY(check_numbers(context, p));
  TIGON_TRY(TIGON_ASK_WORKSPACE(context, attn_res_fwd, p->dtype, p, bytes));
  return tigon_check_blocks(context, a, a->workspace, *bytes > 0 ? a->workspace_bytes : 0);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_attn_res_bwd_args *a, tigon_attn_res_problem *p,
                                size_t *bytes) {
  *p = (tigon_attn_res_problem){TIGON_ROWS_OF(v),
                                .blocks = a->v.shape[0],
                                .v = blocks_of(&a->v, a->v_blocks),
                                .dv = blocks_of(&a->dv, (const void *const *)a->dv_blocks),
                                .q = tigon_vector_of(&a->q),
                                .wn = tigon_vector_of(&a->wn),
                                .dq = tigon_vector_of(&a->dq),
                                .dwn = tigon_vector_of(&a->dwn),
                                .a = a->a.data,
                                .rstd = a->rstd.data,
                                .workspace = a->workspace,
                                .accumulate = a->accumulate_dq != 0};
  const tigon_tensor v = tigon_block_view(&a->v), dv = tigon_block_view(&a->dv);
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&v, &p->v.rows}, {&a->dh, &p->h}, {&dv, &p->dv.rows}));
  TIGON_TRY(check_numbers(context, p));
  TIGON_TRY(TIGON_ASK_WORKSPACE(context, attn_res_bwd, p->dtype, p, bytes));
  return tigon_check_blocks(context, a, a->workspace, *bytes > 0 ? a->workspace_bytes : 0);
}

/* Tokens without columns still have weights. */
TIGON_ENTRY_WITH_WORKSPACE(attn_res, fwd, fwd, prepare_fwd, p.space.rows == 0)
TIGON_ENTRY_WITH_WORKSPACE(attn_res, bwd, bwd, prepare_bwd,
                           p.cols == 0 || (p.space.rows == 0 && !p.dq.data && !p.dwn.data))
