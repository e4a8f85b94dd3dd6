#include "check/norm.h"

static void fwd(check *k) { check_norm_fwd(k, true); }
static void bwd(check *k) { check_norm_bwd(k, true); }

const check_op tigon_check_fused_add_rms_norm_fwd = {fwd, check_row_shapes, CHECK_NORM_OPTIONS, true};
const check_op tigon_check_fused_add_rms_norm_bwd = {bwd, check_row_shapes, CHECK_NORM_OPTIONS, true};
