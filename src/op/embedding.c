#include <tigon/op/embedding.h>

#include "op/front.h"

#define A tigon_embedding_fwd_args
static const tigon_field fwd[] = {
    IN(idx, "*", INDEX('v'), DENSE),
    IN(table, "vc", SAME, ROWS),
    OUT(y, "*c", SAME, ROWS, NULL),
    WANT(error, "1 one flag", I32, DENSE, NULL),
    RESERVED(reserved),
};
#undef A

#define A tigon_embedding_bwd_args
static const tigon_field bwd[] = {
    IN(idx, "*", INDEX('v'), DENSE),
    OUT(dtable, "vc", SAME_OR_F32, DENSE, NULL),
    IN(dy, "*c", SAME, ROWS),
    WANT(error, "1 one flag", I32, DENSE, NULL),
    FLAG(has_padding_idx),
    ANY(padding_idx),
    FLAG(accumulate_dtable),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status prepare_fwd(tigon_context *context, const tigon_embedding_fwd_args *a,
                                tigon_embedding_fwd_problem *p) {
  *p = (tigon_embedding_fwd_problem){
      .cols = a->table.shape[1],
      .vocab = a->table.shape[0],
      .dtype = a->table.dtype,
      .idx_dtype = a->idx.dtype,
      .table = a->table.data,
      .table_pitch = a->table.strides[0],
      .idx = a->idx.data,
  };
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->y, &p->y}));
  return tigon_check_indices(context, "idx", &a->idx, (tigon_dim){"table", &a->table, 0}, false, 0, &a->error,
                             &p->error_flag);
}

static bool has_no_table(const tigon_embedding_bwd_problem *p) { return p->vocab == 0 || p->cols == 0; }

static tigon_status prepare_bwd(tigon_context *context, const tigon_embedding_bwd_args *a,
                                tigon_embedding_bwd_problem *p, size_t *bytes) {
  const int64_t vocab = a->dtable.shape[0];
  if (a->has_padding_idx && (a->padding_idx < 0 || a->padding_idx >= vocab))
    return tigon_refuse(context, "padding_idx is %lld, must be 0 to %lld (dtable.shape[0] - 1)",
                        (long long)a->padding_idx, (long long)vocab - 1);
  *p = (tigon_embedding_bwd_problem){
      .cols = a->dtable.shape[1],
      .vocab = vocab,
      .dtype = a->dy.dtype,
      .idx_dtype = a->idx.dtype,
      .dtable_dtype = a->dtable.dtype,
      .idx = a->idx.data,
      .dtable = a->dtable.data,
      .padding_idx = a->has_padding_idx ? a->padding_idx : -1,
      .order = a->workspace,
      .accumulate = a->accumulate_dtable != 0,
  };
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}));
  TIGON_TRY(tigon_check_indices(context, "idx", &a->idx, (tigon_dim){"dtable", &a->dtable, 0}, false, 0, &a->error,
                                &p->error_flag));
  return has_no_table(p) ? TIGON_OK : TIGON_ASK_WORKSPACE(context, embedding_bwd, p->dtype, p, bytes);
}

TIGON_ENTRY(embedding, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY_WITH_WORKSPACE(embedding, bwd, bwd, prepare_bwd, has_no_table(&p))
