#include "check/cases.h"
#include "check/norm.h"

static void fwd(check *k) { check_norm_fwd(k, true); }
static void bwd(check *k) { check_norm_bwd(k, true); }

MUTANT(offset, fused_add_rms_norm_fwd, m.w_offset = 0)
MUTANT(no_residual, fused_add_rms_norm_fwd, m.residual = m.x)
MUTANT(forget_ds, fused_add_rms_norm_bwd, m.ds.data = NULL)
static const check_mutant wrong_fwd[] = {
    {"forgets w_offset", offset},
    {"adds x instead of residual", no_residual},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"forgets ds", forget_ds},
    {0},
};

static const bench_case timed = {.op = "fused_add_rms_norm", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096};

const check_op tigon_check_fused_add_rms_norm_fwd = {fwd, check_row_shapes, CHECK_NORM_OPTIONS, true, wrong_fwd, &timed,
                                                     NULL};
const check_op tigon_check_fused_add_rms_norm_bwd = {bwd, check_row_shapes, CHECK_NORM_OPTIONS, true, wrong_bwd, &timed,
                                                     NULL};
