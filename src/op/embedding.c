#include <tigon/op/embedding.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_embedding_fwd_args
static const tigon_field fwd[] = {
    IN(idx, "*", INDEX('v'), DENSE),
    IN(table, "vc", SAME, ROWS),
    OUT(y, "*c", SAME, ROWS, NULL),
    WANT(error, "1 one flag", I32, DENSE, NULL),
    RESERVED(reserved),
};
DESCRIBE(embedding, fwd, fwd);
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
DESCRIBE(embedding, bwd, bwd);
#undef A

tigon_status tigon_embedding_fwd(tigon_context *context, const tigon_embedding_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "embedding_fwd";
  tigon_embedding_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_embedding_fwd_schema, args, &a, false));
  tigon_embedding_fwd_problem p = {
      .cols = a.table.shape[1],
      .vocab = a.table.shape[0],
      .dtype = a.table.dtype,
      .idx_dtype = a.idx.dtype,
      .table = a.table.data,
      .table_pitch = a.table.strides[0],
      .idx = a.idx.data,
  };
  const tigon_tensor *const tensors[] = {&a.y};
  tigon_rows *const rows[] = {&p.y};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  TIGON_TRY(tigon_check_indices(context, "idx", &a.idx, (tigon_dim){"table", &a.table, 0}, false, 0, &a.error,
                                &p.error_flag));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, embedding_fwd, p.dtype, &p);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_embedding_bwd_args *args, bool shape_only,
                                tigon_embedding_bwd_problem *p) {
  const char *call = "embedding_bwd";
  tigon_embedding_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_embedding_bwd_schema, args, &a, shape_only));
  const int64_t vocab = a.dtable.shape[0];
  if (a.has_padding_idx && (a.padding_idx < 0 || a.padding_idx >= vocab))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: padding_idx is %lld, must be 0 to %lld (dtable.shape[0] - 1)",
                      call, (long long)a.padding_idx, (long long)vocab - 1);

  *p = (tigon_embedding_bwd_problem){
      .cols = a.dtable.shape[1],
      .vocab = vocab,
      .dtype = a.dy.dtype,
      .idx_dtype = a.idx.dtype,
      .dtable_dtype = a.dtable.dtype,
      .idx = a.idx.data,
      .dtable = a.dtable.data,
      .padding_idx = a.has_padding_idx ? a.padding_idx : -1,
      .order = a.workspace,
      .accumulate = a.accumulate_dtable != 0,
  };
  const tigon_tensor *const tensors[] = {&a.dy};
  tigon_rows *const rows[] = {&p->dy};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space));
  if (shape_only) return TIGON_OK;
  return tigon_check_indices(context, "idx", &a.idx, (tigon_dim){"dtable", &a.dtable, 0}, false, 0, &a.error,
                             &p->error_flag);
}

tigon_status tigon_embedding_bwd(tigon_context *context, const tigon_embedding_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_embedding_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  if (p.vocab == 0 || p.cols == 0) return TIGON_OK;
  TIGON_TRY(TIGON_ASK_WORKSPACE(context, embedding_bwd, p.dtype, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, args->workspace, args->workspace_bytes, bytes));
  return TIGON_CALL_SLOT(context, embedding_bwd, p.dtype, &p);
}

tigon_status tigon_embedding_bwd_workspace(tigon_context *context, const tigon_embedding_bwd_args *args,
                                           size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_embedding_bwd_problem p;
  TIGON_TRY(tigon_check_query(context, &tigon_embedding_bwd_schema, bytes));
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return TIGON_ASK_WORKSPACE(context, embedding_bwd, p.dtype, &p, bytes);
}
