#include "op/loss.h"

#define A tigon_cross_entropy_fwd_args
static const tigon_field fwd[] = {
    IN(logits, "*v", SAME, ROWS),
    IN(labels, "@", INDEX('v'), DENSE),
    WANT(dlogits, "*v", SAME, ROWS, "logits"),
    MAY(dloss, "?1", F32, DENSE),
    MAY(dentropy, "@", F32, DENSE),
    LOSS_TENSORS,
    LOSS_OUTPUTS,
    LOSS_NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_cross_entropy_bwd_args
static const tigon_field bwd[] = {
    IN(logits, "*v", SAME, ROWS),
    IN(labels, "@", INDEX('v'), DENSE),
    OUT(dlogits, "*v", SAME, ROWS, "logits"),
    MAY(dloss, "?1", F32, DENSE),
    MAY(dentropy, "@", F32, DENSE),
    LOSS_TENSORS,
    IN(lse, "@", F32, DENSE),
    MAY(entropy, "@", F32, DENSE),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    LOSS_NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};

/* A call of either entry. */
static tigon_status prepare(tigon_context *context, const tigon_loss_args *loss, const tigon_tensor *dlogits,
                            void *workspace, tigon_cross_entropy_problem *p, size_t *bytes) {
  const tigon_tensor *logits = loss->rows_of;
  TIGON_TRY(tigon_check_loss(context, loss, p));
  p->parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_ROWS | (loss->forward ? TIGON_CROSS_ENTROPY_REDUCE : 0);
  p->dtype = logits->dtype;
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {logits, &p->logits}, {dlogits, &p->dlogits}));
  if (p->space.rows > INT64_MAX / 16)
    return tigon_refuse(context, "logits has more rows than a workspace can hold numbers for");
  tigon_cut_loss(p, loss->out, loss->forward, workspace, bytes);
  return tigon_check_indices(context, "labels", loss->labels, tigon_last_dim("logits", logits), p->has_ignore_index,
                             p->ignore_index, &loss->out->error, &p->error_flag);
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_cross_entropy_fwd_args *a,
                                tigon_cross_entropy_problem *p, size_t *bytes) {
  const tigon_loss_args loss = {LOSS_ARGS(logits), .forward = true, .vocab = tigon_last_extent(&a->logits),
                                .out = &a->out};
  return prepare(context, &loss, &a->dlogits, a->workspace, p, bytes);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_cross_entropy_bwd_args *a,
                                tigon_cross_entropy_problem *p, size_t *bytes) {
  const tigon_cross_entropy_outputs out = {.lse = a->lse, .entropy = a->entropy, .error = a->error};
  if (tigon_present(&a->dentropy) && !tigon_present(&a->entropy))
    return tigon_refuse(context, "entropy is absent, must be there with dentropy");
  const tigon_loss_args loss = {LOSS_ARGS(logits), .vocab = tigon_last_extent(&a->logits), .out = &out};
  return prepare(context, &loss, &a->dlogits, a->workspace, p, bytes);
}

/* Without rows loss and correct are written still. */
TIGON_ENTRY_WITH_WORKSPACE(cross_entropy, fwd, fwd, prepare_fwd, false)
TIGON_ENTRY_WITH_WORKSPACE(cross_entropy, bwd, bwd, prepare_bwd, p.space.rows == 0)
