#include <tigon/op/embedding.h>

#include "op/front.h"

/* idx [...] and values [..., H] share their leading dimensions. */
static tigon_status check_leading(tigon_context *context, const char *call, const tigon_tensor *idx, const char *name,
                                  const tigon_tensor *values) {
  TIGON_TRY(tigon_check_ndim(context, call, name, values, idx->ndim + 1));
  for (int i = 0; i < idx->ndim; ++i)
    TIGON_TRY(tigon_check_same_extent(context, call, name, values, i, (tigon_dim){"idx", idx, i}));
  return TIGON_OK;
}

tigon_status tigon_embedding_fwd(tigon_context *context, const tigon_embedding_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "embedding_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_embedding_fwd_args a = *args;
  tigon_arg list[] = {
      {"table", &a.table, TIGON_FLOATS, TIGON_IN, NULL},
      {"idx", &a.idx, TIGON_INTS, TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"y", &a.y, TIGON_FLOATS, TIGON_OUT, NULL},
      {"error", &a.error, TIGON_BIT(TIGON_I32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  TIGON_TRY(tigon_check_ndim(context, call, "table", &a.table, 2));
  TIGON_TRY(check_leading(context, call, &a.idx, "y", &a.y));
  TIGON_TRY(tigon_check_extent(context, call, "y", &a.y, a.y.ndim - 1, a.table.shape[1], "table.shape[1]"));
  TIGON_TRY(tigon_check_same_dtype(context, call, "y", &a.y, "table", &a.table, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_vector(context, call, "error", &a.error, 1, "one flag"));

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
  TIGON_TRY(tigon_check_indices(context, call, "idx", &a.idx, (tigon_dim){"table", &a.table, 0}, false, 0, &a.error,
                                &p.error_flag));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, embedding_fwd, p.dtype, &p);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_embedding_bwd_args *args, bool shape_only,
                                tigon_embedding_bwd_problem *p) {
  const char *call = "embedding_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_embedding_bwd_args a = *args;
  tigon_arg list[] = {
      {"dy", &a.dy, TIGON_FLOATS, TIGON_IN, NULL},
      {"idx", &a.idx, TIGON_INTS, TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dtable", &a.dtable, TIGON_FLOATS, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
      {"error", &a.error, TIGON_BIT(TIGON_I32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), shape_only));
  TIGON_TRY(tigon_check_ndim(context, call, "dtable", &a.dtable, 2));
  TIGON_TRY(check_leading(context, call, &a.idx, "dy", &a.dy));
  TIGON_TRY(tigon_check_extent(context, call, "dy", &a.dy, a.dy.ndim - 1, a.dtable.shape[1], "dtable.shape[1]"));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dtable", &a.dtable, "dy", &a.dy, TIGON_F32));
  TIGON_TRY(tigon_check_vector(context, call, "error", &a.error, 1, "one flag"));
  TIGON_TRY(tigon_check_flag(context, call, "has_padding_idx", a.has_padding_idx));
  TIGON_TRY(tigon_check_flag(context, call, "accumulate_dtable", a.accumulate_dtable));
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
  return tigon_check_indices(context, call, "idx", &a.idx, (tigon_dim){"dtable", &a.dtable, 0}, false, 0, &a.error,
                             &p->error_flag);
}

tigon_status tigon_embedding_bwd(tigon_context *context, const tigon_embedding_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_embedding_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  if (p.vocab == 0 || p.cols == 0) return TIGON_OK;
  TIGON_TRY(TIGON_ASK_WORKSPACE(context, embedding_bwd, p.dtype, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, "embedding_bwd", args->workspace, args->workspace_bytes, bytes));
  return TIGON_CALL_SLOT(context, embedding_bwd, p.dtype, &p);
}

tigon_status tigon_embedding_bwd_workspace(tigon_context *context, const tigon_embedding_bwd_args *args,
                                           size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_embedding_bwd_problem p;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "embedding_bwd_workspace: bytes is NULL");
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return TIGON_ASK_WORKSPACE(context, embedding_bwd, p.dtype, &p, bytes);
}
